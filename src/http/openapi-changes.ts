/** GET /changes, as the description shows it. */

import type { Config } from "../config.ts";
import { changeTypes } from "../domain/change.ts";
import {
  answer,
  asText,
  type Described,
  int64,
  jsonAndLines,
  limitParameter,
  operation,
  parameter,
} from "./openapi-parts.ts";

const created = {
  seq: 1_767_225_600_000_001,
  time: "2026-01-01T00:00:00.000Z",
  type: "created",
  id: 1,
  by: "till",
  plant: { name: "Monstera", tag: "tropical" },
};
const replaced = {
  ...created,
  seq: 1_767_225_605_000_000,
  time: "2026-01-01T00:00:05.000Z",
  type: "replaced",
  by: "office",
  plant: { name: "Monstera deliciosa", tag: "tropical" },
  before: created.plant,
};

export function describeChanges({ changesDays }: Config): Described {
  return operation("listChanges", "plants:read", "List or follow the changes", {
    description:
      "Every create, replacement and removal, once, in the order of the commits: after a number was read, no smaller one " +
      "appears. A page is an array; if there is more by now, the next page is in the `Link` header. With " +
      "`Accept: application/x-ndjson` the rest comes as a stream, without a `limit`. With `Accept: text/event-stream` " +
      "events come and go on coming: `id` is the number, `event` the type, and `Last-Event-ID` resumes. " +
      "To keep a copy of the plants: note `Last-Change`, read all plants, then the changes after that number. " +
      `Changes are kept for ${changesDays} days. A page that looked at many changes for few that match may end early or be empty, with a next link.`,
    parameters: [
      parameter(
        "after",
        "The number of the last change seen. 0, or nothing: begin with the oldest that is kept.",
        { ...int64, minimum: 0, default: 0 },
      ),
      limitParameter("Changes on a page."),
      parameter("id", "Only changes of this plant.", int64),
      {
        ...parameter("type", "Only these types, separated by commas.", {
          type: "array",
          items: { type: "string", enum: changeTypes },
        }),
        style: "form",
        explode: false,
      },
      parameter(
        "Last-Event-ID",
        "For event streams: the same as `after`, and stronger.",
        { ...int64, minimum: 0 },
        "header",
      ),
    ],
    answers: {
      200: answer(
        "The changes.",
        {
          ...jsonAndLines("Change", [created, replaced]),
          ...asText(
            "text/event-stream",
            `id: ${created.seq}\nevent: created\ndata: ${JSON.stringify(created)}\n\n`,
          ),
        },
        "Link",
        "Last-Change",
      ),
    },
    fails: ["BadQuery", "ChangesGone"],
  });
}
