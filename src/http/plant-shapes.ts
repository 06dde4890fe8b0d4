/** The schemas and examples of plants, batches and changes in the API description. */

import { SAMPLE_LENGTH } from "../domain/bulk.ts";
import { changeTypes, shownParts } from "../domain/change.ts";
import { INT64_MAX, INT64_MIN } from "../domain/json.ts";
import { type Patch, parsePatch, patchRules } from "../domain/write.ts";
import { JSON_TYPE } from "./body.ts";
import type { Argument } from "./field.ts";
import {
  define,
  describeRules,
  annotate,
  flag,
  int64,
  integer,
  list,
  mapValues,
  maybe,
  object,
  text,
  time,
} from "./shape.ts";

const plantMembers = {
  name: text(
    "Monstera deliciosa",
    "The name of the plant. Any string, even an empty one, without U+0000 and unpaired surrogates.",
  ),
  tag: text(
    "tropical",
    "Tag that specifies the type. The same rules as for the name. A plant without a tag leaves it out; it is never null.",
  ),
};
export const id = int64(
  1,
  `Identification number of the plant: any integer from ${INT64_MIN} to ${INT64_MAX}, kept exactly. A double rounds ids beyond ${Number.MAX_SAFE_INTEGER}.`,
);

/** The parser in domain/plant.ts accepts exactly what these two schemas describe. */
export const Plant = define("Plant", plantMembers, { optional: ["tag"] });
export const NewPlant = define("NewPlant", { id, ...plantMembers }, { optional: ["tag"] });
export const StoredPlant = define(
  "StoredPlant",
  {
    id,
    ...plantMembers,
    changed: time(
      undefined,
      "With `include=changed`: the time of the last change. Absent if the plant has not changed since version 1.0.",
    ),
  },
  { optional: ["tag", "changed"], description: "A plant with its id." },
);

const patchMembers = describeRules(patchRules, {
  name: annotate(plantMembers.name, "The new name."),
  tag: maybe(annotate(plantMembers.tag, "The new tag; null removes it.")),
});
const PlantPatch = define("PlantPatch", patchMembers, {
  additionalProperties: false,
  description: "What to change.",
});

const PATCH_TYPES = ["application/merge-patch+json", JSON_TYPE];
export const patchBodies = Object.fromEntries(PATCH_TYPES.map((type) => [type, PlantPatch]));

export const patchArguments = {
  patch: {
    ...object(patchMembers, { additionalProperties: false }),
    expected: "an object with name, tag or both",
    // Throws a Refusal that names every fault.
    find: (input) => (input === undefined ? undefined : parsePatch(input)),
  } as Argument<Patch>,
};

const errorMembers = {
  error: integer(3001, "Numeric error value, from the catalogue.", { format: "int32" }),
  message: text("A different plant has the id 1; nothing was changed.", "Error text for people."),
};

define(
  "BatchLine",
  {
    id,
    ...plantMembers,
    removed: flag(undefined, "Removes the plant with this id. The line has no name and no tag.", {
      const: true,
    }),
    ifMatch: text(
      undefined,
      "With `removed`, or in a batch with `upsert=true`: the line fails with 412 if the plant no longer has this entity tag.",
    ),
  },
  {
    optional: ["name", "tag", "removed", "ifMatch"],
    description: "A plant to write, or to remove.",
  },
);

const BatchResult = define(
  "BatchResult",
  {
    line: integer(3, "The number of the line, or the place in the array, from 1."),
    status: integer(409, "The status that a write of this line alone would have."),
    replaced: flag(undefined, "True if the plant replaced a stored one."),
    removed: flag(undefined, "True if the plant was removed."),
    replayed: flag(undefined, "True if the line changed nothing: the store had it already."),
    now: {
      ...annotate(Plant, "In a dry run: the plant that the line would replace or remove."),
      example: undefined,
    },
    ...errorMembers,
  },
  { optional: ["replaced", "removed", "replayed", "now", "error", "message"] },
);

export const created = {
  seq: 1_767_225_600_000_001,
  time: "2026-01-01T00:00:00.000Z",
  type: "created",
  id: 1,
  by: "till",
  batch: "spring.csv 2026-01-01",
  plant: { name: "Monstera", tag: "tropical" },
};

export const Change = define(
  "Change",
  {
    seq: int64(
      1_767_225_605_000_000,
      "Grows in the order of the commits, with gaps. At least the time of the change in microseconds since 1970, and within the range of doubles.",
    ),
    time: time("2026-01-01T00:00:05.000Z"),
    type: text("replaced", undefined, { enum: changeTypes }),
    id,
    ...Object.fromEntries(
      shownParts.map(({ name, meaning, example }) => [name, text(example, meaning)]),
    ),
    plant: annotate(Plant, "The plant after this change. Absent if it was removed."),
    before: {
      ...annotate(Plant, "The plant before this change. Absent if it was created."),
      example: created.plant,
    },
    folded: annotate(
      object(
        mapValues(Object.fromEntries(changeTypes.map((type) => [type, type])), (type) =>
          integer(undefined, `Changes of the type ${type}.`),
        ),
      ),
      "With `fold`, for a change of a run: how many changes the entry stands for, itself included.",
    ),
    foldedTo: int64(undefined, "With `folded`: the number of the last change of the run."),
  },
  {
    optional: [...shownParts.map(({ name }) => name), "plant", "before", "folded", "foldedTo"],
  },
);

export const ChangeCount = define(
  "ChangeCount",
  {
    start: time("2026-01-01T00:00:00.000Z", "The start of the interval, with `every`."),
    by: text("till", "The name of the token. Absent if a command changed the store directly."),
    batch: text("spring.csv 2026-01-01", "Absent for changes without a batch."),
    created: integer(1200),
    replaced: integer(3),
    removed: integer(0),
    first: int64(1_767_225_600_000_001, "The number of the first change."),
    last: int64(1_767_225_605_000_000, "The number of the last change."),
    firstTime: time("2026-01-01T00:00:00.000Z"),
    lastTime: time("2026-01-01T00:00:05.000Z"),
  },
  { optional: ["start", "by", "batch"] },
);

define("Error", errorMembers);
export const monstera = NewPlant.example;
export const ficus = { id: 2, name: "Ficus lyrata" };
export const CSV_EXAMPLE =
  'id,name,tag\r\n1,"Monstera deliciosa","tropical"\r\n2,"Ficus lyrata",\r\n';
export const batchResults = [
  { line: 1, status: 200 },
  { line: 2, status: 200, replayed: true },
  BatchResult.example,
];

export const previewMembers = {
  plants: integer(2, "Plants that match."),
  exact: flag(true, "False if more may match."),
  sample: list(
    object(
      {
        id,
        now: { ...annotate(Plant, "The plant as it is."), example: { name: "Monstera" } },
        after: {
          ...annotate(Plant, "The plant as it would be. Absent if it would be removed."),
          example: { name: "Monstera", tag: "tropical" },
        },
      },
      { optional: ["after"] },
    ),
    `Up to ${SAMPLE_LENGTH} plants that would be changed.`,
  ),
};
export const BulkPreview = define("BulkPreview", previewMembers);
