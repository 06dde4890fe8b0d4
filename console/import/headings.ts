/** Guesses the columns of a table by their headings, in English, German, French, Spanish, Italian and Dutch. */

import type { PlantField } from "../../src/domain/faults.ts";
import type { Headings } from "../../src/format/csv.ts";

/** As `simplify` returns them, the most telling first. */
const words: Readonly<Record<PlantField, string>> = {
  id: `id plantid plantcode plantnumber plantno plantnr pflanzennummer pflanzennr plantnummer
    numeroplante codeplante codigoplanta codicepianta
    ean eancode codeean ean13 eannummer eannr gtin gtin13 upc barcode barcodenumber strichcode
    codebarres codebarre codigodebarras codigobarras codiceabarre codicebarre streepjescode
    sku itemnumber itemno itemnr itemcode itemid articlenumber articleno articlenr articlecode
    productnumber productno productcode productid stocknumber stockcode
    artikelnummer artikelnr artikelcode artikelid artnummer artnr produktnummer produktnr
    bestellnummer bestellnr bestelnummer productnummer
    codearticle referencearticle refarticle numeroarticle codeproduit
    codigoarticulo codigodearticulo codigoproducto codigodeproducto numerodearticulo
    codicearticolo codarticolo codart codiceprodotto numeroarticolo
    number nummer numero num nr no key kennung kennnummer identifiant identificador identificativo
    code codigo codice cod reference referencia riferimento referentie ref rif column1`,
  name: `name nom nombre nome naam plantname pflanzenname plantnaam nomplante nomdelaplante
    nombreplanta nombredelaplanta nomepianta nomedellapianta
    plant pflanze plante planta pianta
    bezeichnung artikelbezeichnung produktbezeichnung designation denominacion denominazione
    benaming benennung libelle intitule omschrijving artikelomschrijving
    itemname articlename productname artikelname produktname artikelnaam productnaam
    nomproduit nomduproduit nombreproducto nomeprodotto
    botanicalname latinname commonname botanischername deutschername nombotanique nomlatin
    nombrecientifico nombrecomun nomescientifico nomecomune botanischenaam latijnsenaam
    title titel titre titulo titolo species espece especie specie
    variety cultivar sorte variete variedad varieta label
    description beschreibung descripcion descrizione beschrijving
    product produkt produit producto prodotto item article artikel articulo articolo column2`,
  tag: `tag tags schlagwort etiquette etiqueta etichetta etiket
    category kategorie categorie categoria type typ tipo kind art soort tipologia
    group gruppe groupe grupo gruppo groep plantgroup productgroup
    pflanzengruppe warengruppe artikelgruppe produktgruppe productgroep artikelgroep
    family familie famille familia famiglia genus gattung genre genero genere geslacht column3`,
};

/** "Art.-Nr." is artnr, "Código de barras (13)" is codigodebarras, "N°" is no. */
const simplify = (heading: string): string =>
  heading
    .replaceAll(/\(.*?\)/g, "")
    .replaceAll("#", "nr")
    .replaceAll(/[°º]/g, "o")
    .normalize("NFKD")
    .toLowerCase()
    .replaceAll(/[^a-z\d]/g, "");

/** A column that is not numeric, with codes such as "A-17", is the id only if there is no other. */
export function guessColumns(
  columns: readonly string[],
  isNumeric: (heading: string) => boolean = () => true,
): Headings {
  const list = (field: PlantField): string[] => {
    const known = words[field].split(/\s+/);
    const rank = (heading: string): number => known.indexOf(simplify(heading));
    return columns
      .filter((heading) => rank(heading) !== -1)
      .toSorted((one, other) => rank(one) - rank(other));
  };
  const ids = list("id");
  return { id: ids.find(isNumeric) ?? ids[0], name: list("name")[0], tag: list("tag")[0] ?? null };
}
