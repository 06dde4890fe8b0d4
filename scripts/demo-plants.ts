/** A nursery's stock: botanical names, cultivars and kinds. */

import type { Plant } from "../src/domain/plant.ts";

/** Kind, genus, common name, species. */
const genera: readonly (readonly [tag: string, genus: string, common: string, species: string])[] =
  [
    ["aroid", "Monstera", "Swiss cheese plant", "deliciosa adansonii obliqua siltepecana"],
    ["aroid", "Philodendron", "Philodendron", "hederaceum gloriosum melanochrysum erubescens"],
    ["aroid", "Anthurium", "Flamingo flower", "andraeanum clarinervium crystallinum veitchii"],
    ["aroid", "Alocasia", "Elephant ear", "zebrina cuprea macrorrhizos reginula"],
    ["succulent", "Echeveria", "Mexican snowball", "elegans agavoides lilacina pulvinata"],
    ["succulent", "Crassula", "Jade plant", "ovata perforata capitella muscosa"],
    ["succulent", "Haworthia", "Zebra plant", "attenuata cooperi fasciata limifolia"],
    ["succulent", "Aloe", "Aloe", "vera aristata polyphylla striata"],
    ["succulent", "Sedum", "Stonecrop", "morganianum rubrotinctum spectabile acre"],
    ["cactus", "Mammillaria", "Pincushion cactus", "elongata hahniana plumosa bocasana"],
    ["cactus", "Opuntia", "Prickly pear", "microdasys ficus-indica monacantha"],
    ["cactus", "Gymnocalycium", "Chin cactus", "mihanovichii baldianum horstii"],
    ["fern", "Nephrolepis", "Boston fern", "exaltata cordifolia biserrata"],
    ["fern", "Adiantum", "Maidenhair fern", "raddianum capillus-veneris hispidulum"],
    ["fern", "Asplenium", "Spleenwort", "nidus antiquum scolopendrium"],
    ["fern", "Dryopteris", "Wood fern", "filix-mas erythrosora affinis"],
    ["orchid", "Phalaenopsis", "Moth orchid", "amabilis schilleriana equestris bellina"],
    ["orchid", "Dendrobium", "Bamboo orchid", "nobile kingianum bigibbum"],
    ["orchid", "Cattleya", "Corsage orchid", "labiata trianae walkeriana"],
    ["orchid", "Paphiopedilum", "Slipper orchid", "insigne callosum rothschildianum"],
    ["herb", "Ocimum", "Basil", "basilicum tenuiflorum americanum"],
    ["herb", "Mentha", "Mint", "spicata piperita suaveolens"],
    ["herb", "Thymus", "Thyme", "vulgaris serpyllum citriodorus"],
    ["herb", "Salvia", "Sage", "officinalis rosmarinus elegans nemorosa"],
    ["herb", "Lavandula", "Lavender", "angustifolia stoechas intermedia"],
    ["tree", "Acer", "Maple", "palmatum japonicum rubrum griseum"],
    ["tree", "Ficus", "Fig", "lyrata elastica benjamina microcarpa"],
    ["tree", "Prunus", "Flowering cherry", "serrulata mume subhirtella"],
    ["tree", "Betula", "Birch", "pendula utilis nigra"],
    ["palm", "Chamaedorea", "Parlour palm", "elegans seifrizii metallica"],
    ["palm", "Trachycarpus", "Windmill palm", "fortunei wagnerianus"],
    ["shrub", "Hydrangea", "Hydrangea", "macrophylla paniculata quercifolia serrata"],
    ["shrub", "Rhododendron", "Rhododendron", "yakushimanum ponticum luteum"],
    ["shrub", "Camellia", "Camellia", "japonica sasanqua reticulata"],
    ["climber", "Clematis", "Virgin's bower", "montana viticella armandii alpina"],
    ["climber", "Hoya", "Wax flower", "carnosa kerrii linearis australis"],
    ["climber", "Wisteria", "Wisteria", "sinensis floribunda"],
    ["bulb", "Tulipa", "Tulip", "gesneriana clusiana tarda"],
    ["bulb", "Narcissus", "Daffodil", "poeticus jonquilla cyclamineus"],
    ["bulb", "Allium", "Ornamental onion", "giganteum hollandicum schubertii"],
    ["perennial", "Geranium", "Cranesbill", "sanguineum phaeum macrorrhizum"],
    ["perennial", "Hosta", "Plantain lily", "sieboldiana plantaginea ventricosa"],
    ["perennial", "Heuchera", "Coral bells", "sanguinea villosa micrantha"],
    ["perennial", "Helleborus", "Hellebore", "orientalis niger foetidus"],
    ["grass", "Miscanthus", "Silver grass", "sinensis giganteus"],
    ["grass", "Carex", "Sedge", "oshimensis morrowii comans"],
    ["carnivorous", "Nepenthes", "Pitcher plant", "ventricosa alata rajah"],
    ["carnivorous", "Sarracenia", "Trumpet pitcher", "purpurea leucophylla flava"],
    ["aquatic", "Nymphaea", "Water lily", "alba odorata tetragona"],
  ];

const cultivars = (
  "Alba|Albo Variegata|Amber Glow|Atropurpurea|Aurea|Black Beauty|Bloodgood|Blue Moon|Bright Star|" +
  "Chocolate Cherry|Compacta|Coral Bells|Crimson King|Dark Star|Elegantissima|Emerald Gem|Evening Sky|" +
  "First Frost|Golden Queen|Grandiflora|Hidcote|Ivory Prince|Jade Tower|Kew Gardens|Lady Jane|Lemon Lime|" +
  "Little Gem|Luna|Marginata|Midnight|Mini White|Moonlight|Nana|Neon|Obsidian|Orange Crush|Pendula|" +
  "Pink Princess|Purple Haze|Queen of Night|Red Dragon|Rosea|Ruby Glow|Sango-kaku|Silver Queen|Snow Cloud|" +
  "Sunburst|Thai Constellation|Tricolor|Variegata|Velvet Touch|White Knight|Winter Sun"
).split("|");

const FIRST_ID = 1001n;
/** Some ids are the numbers on a supplier's labels. */
const LABELS_FROM = 4_006_381_000_000n;
const BEYOND_DOUBLES = [9_007_199_254_740_993n, 9_223_372_036_854_775_807n];

/** Deterministic. Plants with neighbouring ids differ. */
export function createDemoPlants(count: number): readonly Plant[] {
  const kinds = genera.flatMap(([tag, genus, common, species]) =>
    species.split(" ").map((name) => ({ tag, common, botanical: `${genus} ${name}` })),
  );
  const random = createRandom(1753);
  return Array.from({ length: count }, (_, index) => {
    const { tag, common, botanical } = pick(kinds, random);
    const cultivar = pick(cultivars, random);
    // Some are a plain species, some have their common name in front, some have no tag.
    const rest = index % 10;
    const plain = rest === 2 ? `${common} (${botanical})` : botanical;
    const name = rest < 7 && rest !== 2 ? `${botanical} '${cultivar}'` : plain;
    return { id: chooseId(index, count), name, tag: index % 20 === 7 ? undefined : tag };
  });
}

function pick<Item>(items: readonly Item[], random: (below: number) => number): Item {
  return items[random(items.length)] as Item;
}

function chooseId(index: number, count: number): bigint {
  const beyond = BEYOND_DOUBLES[count - 1 - index];
  if (beyond !== undefined) return beyond;
  return (index % 4 === 3 ? LABELS_FROM + 37n * BigInt(index) : FIRST_ID) + BigInt(index);
}

/** Mulberry32: small, and the same on every machine. */
function createRandom(seed: number): (below: number) => number {
  let state = seed;
  return (below) => {
    state = (state + 0x6d2b79f5) | 0;
    let mixed = Math.imul(state ^ (state >>> 15), 1 | state);
    mixed = (mixed + Math.imul(mixed ^ (mixed >>> 7), 61 | mixed)) ^ mixed;
    return Math.floor((((mixed ^ (mixed >>> 14)) >>> 0) / 2 ** 32) * below);
  };
}
