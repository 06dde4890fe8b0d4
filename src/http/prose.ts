/** The words of the API description: what it says of itself, and of each operation by its id. */

import type { Config } from "../config.ts";
import { filterNames, filters } from "../domain/filter.ts";
import { JOBS_MAX, JOBS_RUNNING_MAX } from "../domain/job.ts";
import { TAG_PREFIX_CHARACTERS } from "../domain/page.ts";
import { WEBHOOKS_MAX } from "../domain/webhook.ts";
import { SAMPLES_MAX } from "../observe/reporter.ts";
import { lineBytesMax } from "./batch.ts";

export const INTRODUCTION =
  "Stores plants. A write is answered after it is on disk. " +
  "Sending the same plant again succeeds and stores nothing new, so every create is safe to retry. " +
  "Every failure answers `{error, message}`. Errors lists the values of `error`.\n\n" +
  `Ids are exact over the whole range of int64. A client that reads them into doubles rounds ids beyond ${Number.MAX_SAFE_INTEGER} without an error, and the clients that generators make for JavaScript and TypeScript do. Stay within that range, or use a parser with 64-bit or big integers.`;

export const groups = {
  plants: "The plants in the store.",
  webhooks: "Who is told of changes.",
  operation: "For operators of the service.",
};

const searchNames = filterNames
  .filter((name) => !filters[name].isIndexed)
  .map((name) => `\`${name}\``)
  .join(" or ");

const describeBulk = (count: string): string =>
  "Without a filter the answer is 400. Each plant is one write, on the condition that it is still what it was when it was " +
  "found: otherwise it was changed meanwhile, and is left alone. Plants that are created meanwhile may be left out. " +
  "With `dry_run=true` nothing is changed: the answer is JSON. " +
  "Without it, each plant that was left alone is a line, with status 412 if it was changed meanwhile, else with the error of its write. " +
  `Lines with counts (\`${count}\`, \`unchanged\`, \`changedSince\`, \`refused\`) show progress; \`complete\` is true in the last one. ` +
  "If the work was broken off, the last line has `complete: false`, a status and an error. Sent again, it continues. " +
  "It stops after a commit if the client closes the connection. " +
  "With `Prefer: respond-async` the answer is 202, and the service finishes the work without the client: `GET /jobs` shows it, `DELETE /jobs` stops it. " +
  "The batch names these writes in the journal, so `POST /changes/revert` takes them back. Also needs the scope `plants:read`.";

export const writeDescriptions = (config: Config): Readonly<Record<string, string>> => ({
  createPlant:
    "Creates a new plant in the store. Unknown members of the body are ignored. " +
    "The same plant under the same id again answers 200 with `Idempotent-Replayed: true`; " +
    "a different plant under a taken id answers 409 and changes nothing. " +
    `Limits: body ${config.bodyBytesMax} bytes, ${config.readSecondsMax} s to send it, ` +
    `URL ${config.urlBytesMax} bytes, head ${config.headerBytesMax} bytes.`,
  listPlants:
    "A page of plants in the order of their ids, as an array; the next page is in the `Link` header, which the last " +
    "page does not have. With `Accept: application/x-ndjson` or `text/csv` the whole (filtered) store comes as a " +
    "stream instead, and `limit` is not allowed. To know that a stream is complete, ask for what comes after its last " +
    "plant: `?after=<id>&limit=1`, with the same filters. " +
    `A page of very long names may end before its limit. A search by ${searchNames} looks for a page for a bounded time, and at most at ${config.scanRowsMax} plants, so a page may end early or be empty. Both have a next link.`,
  patchPlants: `Applies a merge patch (RFC 7396) to each plant that matches every filter given. ${describeBulk("replaced")}`,
  removePlants: `Removes each plant that matches every filter given. ${describeBulk("removed")}`,
  createPlants:
    "Takes an array of plants and answers with an array of results, or takes one plant a line and answers with one " +
    "result a line, while the lines are still being sent. Results are in the order of the plants. " +
    "Each plant succeeds or fails alone, as a create of it would. Safe to send again as a whole. " +
    "With `upsert=true`, a plant whose id is taken replaces the stored one, and an equal one changes nothing. " +
    '`{"id": 7, "removed": true}` removes a plant. If there is none, that is a 404 of this line, or with `upsert=true` no change. ' +
    'With `upsert=true` or `removed`, a line may have `"ifMatch"`, with the meaning of the header `If-Match`. ' +
    "With `atomic=true` the array, or all lines together, are one transaction within the limit of a body: " +
    "either every line succeeds, or nothing is stored, and the answer is the error of the first line that failed, " +
    "with a message that begins with `line`, its number and a colon. If the answer was lost, send it again. " +
    `Limits: ${config.bodyBytesMax} bytes an array; any number of lines, ${lineBytesMax(config)} bytes a line, ` +
    `${config.readSecondsMax} s between two pieces. ` +
    "A client that sends everything before it reads sends `Prefer: return=minimal` with its lines, and gets the results of the first 1000 refused lines " +
    'and then `{"created":2,"replayed":0,"refused":1,"complete":true}` as the last line, with `replaced` and `removed` if lines can do that. `complete` is false if the lines could not be read to their end. ' +
    `Without it, read the results while you send: the service waits ${config.idleSecondsMax / 2} s for a client that does not, then stores the rest and ends the answer in the same way. ` +
    "If the lines cannot be read to their end, the last result says so (400, 401, 408, 503), and nothing after it was stored: count the results.",
  countPlants:
    "How many plants there are, or how many match. The service counts for a second at most; if that is not enough, " +
    "`exact` is false and there are at least that many. The answer may be up to two seconds old.",
  replacePlant:
    "Replaces name and tag of an existing plant; a tag that is left out is removed. An `id` in the body must be the one in the path; other unknown members are ignored. " +
    "With `If-Match`, a change that another client made in between is not overwritten. " +
    `The body has at most ${config.bodyBytesMax} bytes.`,
  patchPlant:
    'Changes only the members that are sent: a merge patch (RFC 7396). `{"tag": null}` removes the tag. ' +
    "A patch that leaves the plant as it is changes nothing: the journal has no entry for it. " +
    "With `If-Match`, a change that another client made in between is not overwritten. " +
    `The body has at most ${config.bodyBytesMax} bytes. ` +
    "Also needs the scope `plants:read`, because the answer shows the whole plant.",
  listTags:
    "Each tag once, in the order of its UTF-8 bytes; the next page is in the `Link` header, which the last page " +
    `does not have. Tags of ${TAG_PREFIX_CHARACTERS} characters or more are not listed; if there are many, ` +
    "a page may end early or be empty, with a next link.",
  countTags:
    "The tags in use, in the same order and pages as `GET /tags`, each with the number of its plants. " +
    "The service counts for a page for about a second; then the page ends early, with a next link.",
  listChanges:
    "Every create, replacement and removal, once, in the order of the commits: after a number was read, no smaller one " +
    "appears. A page is an array; if there is more by now, the next page is in the `Link` header. With " +
    "`Accept: application/x-ndjson` the rest comes as a stream, without a `limit`. With `Accept: text/event-stream` " +
    "events follow the journal: `id` is the number, `event` the type, and `Last-Event-ID` resumes. " +
    "To keep a copy of the plants: note `Last-Change`, read all plants, then the changes after that number. " +
    `Changes are kept for ${config.changesDays} days. A page that looked at many changes for few that match may end early or be empty, with a next link.`,
  revertChanges:
    "Takes back the changes that match everything given. Each plant that they concern gets the state from before them, " +
    "if it is still in the state that they left. Otherwise it was changed since, and is left alone. " +
    "Each plant is one write, in the journal by this token. Sent again, it continues. A revert can be reverted. " +
    `With \`dryRun\` nothing is changed: the answer is JSON, for at most ${config.revertPlantsMax} plants. ` +
    "Without it, each plant that was left alone is a line, with status 412 if it was changed since, else with the error of its write. " +
    "Lines with counts show progress; `complete` is true in the last one. If the revert was broken off, the last line has `complete: false`, a status and an error. " +
    "With `Prefer: respond-async` it is a job, as for `PATCH /plants`. " +
    "Also needs the scope `plants:read`.",
  listJobs:
    "The work of requests with `Prefer: respond-async`, the oldest first: all that runs, by any token and on any service of this store, and what ended before. " +
    `At most ${JOBS_RUNNING_MAX} run at a time. ${JOBS_MAX} are kept. ` +
    `A service that shuts down ends its jobs after a commit. One that is killed leaves them \`lost\` after ${config.jobLostSeconds} seconds. ` +
    "Send the request again, with the same batch, and the work continues.",
  stopJob:
    "The job ends after its commit in flight, within two seconds. What it has changed stays; `POST /changes/revert` takes it back by its batch. " +
    "Also needs the scope `plants:read`.",
  listWebhooks: "By name, without their secrets.",
  addWebhook: `Sends every change from now on to a URL, signed, in order and at least once. The token needs \`plants:read\` too. At most ${WEBHOOKS_MAX} webhooks.`,
  readWebhook: "Without its secret.",
  removeWebhook: "An event in flight may still arrive.",
  testWebhook: "Its type is `webhook.test`.",
  replayWebhook: "Continues after the change with that number, even if the webhook was paused.",
  skipWebhook:
    "Skips the change that failed and resumes at once, even if the webhook was paused. Does nothing if none has failed, so it is safe to repeat.",
  pauseWebhook: "Nothing is sent until it is resumed.",
  resumeWebhook: "Continues from its cursor at once.",
  rotateWebhook: "For 24 hours events are signed with both.",
  listTokens:
    "A page of all that were ever made, in the order of their ids; the next page is in the `Link` header, which the " +
    "last page does not have. Never the token itself.",
  createToken:
    "Answers with the token, this once. A token cannot hand out a scope that it lacks, a later end " +
    "than its own, or a higher rate. Each token has a rate of its own, so a rate does not bound what a token with " +
    "`tokens:manage` can do through others. " +
    "If the answer is lost, the name is taken: revoke that token, and create it again.",
  revokeToken:
    "Instances refuse it within 5 seconds. The last token that can manage tokens stays, unless the service has PLANTSTORE_TOKEN.",
  showActivity: `The last ${(SAMPLES_MAX * config.sampleSeconds) / 60} minutes in intervals, oldest first. Counts are per interval.`,
  isAlive: "Answers as long as the process runs.",
  isReady:
    "Answers 200 if a write was committed and synced within the last second and the service is not shutting down.",
  describeApi: "The description of the interface, in OpenAPI 3.1.",
});
