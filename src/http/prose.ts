/** The texts of the API description: its introduction, and a description of each operation by its id. */

import type { Config } from "../config.ts";
import { filterNames, filters } from "../domain/filter.ts";
import { JOBS_MAX, JOBS_RUNNING_MAX } from "../domain/job.ts";
import { TAG_PREFIX_CHARACTERS } from "../domain/page.ts";
import { WEBHOOKS_MAX } from "../domain/webhook.ts";
import { SAMPLES_MAX } from "../observe/reporter.ts";
import { lineBytesMax, REFUSED_SHOWN_MAX } from "./batch.ts";

export const INTRODUCTION =
  "Stores plants. A write is answered after it is on disk. " +
  "Sending the same plant again succeeds and stores nothing new, so every create is safe to retry. " +
  "Every failure answers `{error, message}`. The section Errors lists the values of `error`.\n\n" +
  `Ids are exact over the whole range of int64. A client that reads them into doubles rounds ids beyond ${Number.MAX_SAFE_INTEGER} without an error; generated clients for JavaScript and TypeScript do so. Stay within that range, or use a parser with 64-bit or big integers.`;

export const groups = {
  plants: "The plants in the store.",
  webhooks: "Change notifications.",
  operation: "For operators of the service.",
};

const searchNames = filterNames
  .filter((name) => !filters[name].isIndexed)
  .map((name) => `\`${name}\``)
  .join(" or ");

const describeBulk = (count: string): string =>
  "Without a filter the answer is 400; for the whole store, send `all=true` instead. Each plant is one conditional write: a plant that someone else changed " +
  "meanwhile is left alone. Plants created meanwhile may be missed. " +
  "With `dry_run=true` nothing is changed, and the answer is JSON. " +
  "Otherwise the answer has a line for each plant that was left alone: status 412 if it was changed meanwhile, else the error of its write. " +
  `Lines with counts (\`${count}\`, \`unchanged\`, \`changedSince\`, \`refused\`) show progress; \`complete\` is true in the last one. ` +
  "If the work was interrupted, the last line has `complete: false`, a status and an error. Send the request again to continue. " +
  "If the client closes the connection, the work stops after a commit. " +
  "With `Prefer: respond-async` the answer is 202, and the service finishes the work without the client: `GET /jobs` shows it, `DELETE /jobs` stops it. " +
  "The batch names these writes in the journal, so `POST /changes/revert` can undo them.";

export const writeDescriptions = (config: Config): Readonly<Record<string, string>> => ({
  createPlant:
    "Creates a new plant in the store. Unknown members of the body are ignored. " +
    "The same plant under the same id again answers 200 with `Idempotent-Replayed: true`; " +
    "a different plant under a taken id answers 409 and changes nothing. " +
    `Limits: body ${config.bodyBytesMax} bytes, ${config.readSecondsMax} s to send it, ` +
    `URL ${config.urlBytesMax} bytes, head ${config.headerBytesMax} bytes.`,
  listPlants:
    "A page of plants in the order of their ids, or of `sort`, as an array; the next page is in the `Link` header, which the last " +
    "page does not have. With `Accept: application/x-ndjson` or `text/csv` all plants that match are streamed " +
    "instead, and `limit` is not allowed. To check that a stream is complete, request what follows its last " +
    "plant: `?after=<id>&limit=1`, with the same filters. " +
    "A page with `sort` by name, tag or changed scans all plants, in turn with other reads, and its next link has a `cursor` instead of `after`. " +
    `A page of very long names may end before its limit. A search by ${searchNames} scans for a bounded time, and at most ${config.scanRowsMax} plants, so a page may end early or be empty. Both have a next link.`,
  patchPlants: `Applies a merge patch (RFC 7396) to each plant that matches all filters. ${describeBulk("replaced")}`,
  removePlants: `Removes each plant that matches all filters. ${describeBulk("removed")}`,
  createPlants:
    "Accepts an array of plants and answers with an array of results, or accepts one plant per line and answers with one " +
    "result per line, while the lines are still being sent. The body may be sent in gzip or zstd (`Content-Encoding`). Results are in the order of the plants. " +
    "Each plant succeeds or fails alone, as a single create would. The whole batch is safe to send again. " +
    "With `upsert=true`, a plant whose id is taken replaces the stored one, and an equal one changes nothing. " +
    '`{"id": 7, "removed": true}` removes a plant. If there is no such plant, the line gets a 404, or with `upsert=true` changes nothing. ' +
    'With `upsert=true` or `removed`, a line may have `"ifMatch"`, with the meaning of the header `If-Match`. ' +
    "With `atomic=true` the whole batch is one transaction, no larger than one body: " +
    "either every line succeeds, or nothing is stored, and the answer is the error of the first line that failed, " +
    "with a message that begins with `line`, its number and a colon. If the answer was lost, send it again. " +
    "With `upsert=true` and `Prefer: respond-async`, a batch no larger than one body is a job that the service finishes without the client: `GET /jobs` shows it, `DELETE /jobs` stops it. It also needs `plants:read`. If one line is not a plant, all are refused, with such a message. " +
    `Limits: ${config.bodyBytesMax} bytes per array; any number of lines, ${lineBytesMax(config)} bytes per line, ` +
    `${config.readSecondsMax} s between two pieces. ` +
    `A client that sends everything before it reads must send \`Prefer: return=minimal\` with its lines. It gets the results of the first ${REFUSED_SHOWN_MAX} refused lines ` +
    'and then `{"created":2,"replayed":0,"refused":1,"complete":true}` as the last line, with `replaced` and `removed` if lines can do that. `complete` is false if the lines could not be read to their end. ' +
    `Without that header, read the results while you send: the service waits ${config.idleSecondsMax / 2} s for a client that does not read, then stores the rest and ends the answer in the same way. ` +
    "If the lines cannot be read to their end, the last result says so (400, 401, 408, 503), and nothing after it was stored: count the results.",
  countPlants:
    "How many plants there are, or how many match. The service counts for a second at most; after that " +
    "`exact` is false, `count` is a lower bound, and the next link continues the count: add up the counts. The answer may be up to two seconds old.",
  replacePlant:
    "Replaces name and tag of an existing plant; a tag that is left out is removed. An `id` in the body must be the one in the path; other unknown members are ignored. " +
    "With `If-Match`, a change that another client made in between is not overwritten. " +
    `The body has at most ${config.bodyBytesMax} bytes.`,
  patchPlant:
    'Changes only the members that are sent: a merge patch (RFC 7396). `{"tag": null}` removes the tag. ' +
    "A patch that leaves the plant as it is changes nothing: the journal has no entry for it. " +
    "With `If-Match`, a change that another client made in between is not overwritten. " +
    `The body has at most ${config.bodyBytesMax} bytes. The answer shows the whole plant.`,
  listTags:
    "Each tag once, in the order of its UTF-8 bytes; the next page is in the `Link` header, which the last page " +
    `does not have. Tags of ${TAG_PREFIX_CHARACTERS} characters or more are not listed; if there are many, ` +
    "a page may end early or be empty, with a next link.",
  countTags:
    "The tags in use, in the same order and pages as `GET /tags`, each with the number of its plants. " +
    "The service counts for about a second per page; then the page ends early, with a next link.",
  listChanges:
    "Every plant that was created (the console says added), changed (in the API `replaced`) or removed (the console says deleted), once, in commit order: after a number was read, no smaller one " +
    "appears. A page is an array; if there are more, the next page is in the `Link` header. With " +
    "`Accept: application/x-ndjson` the rest is streamed, without a `limit`. With `Accept: text/event-stream` " +
    "events follow the journal: `id` is the number, `event` the type, and `Last-Event-ID` resumes. " +
    "To keep a copy of the plants: note `Last-Change`, read all plants, then the changes after that number. " +
    `Changes are kept for ${config.changesDays} days. If few of many changes match, a page may end early or be empty, with a next link.`,
  countChanges:
    "How many plants were created, changed and removed: per token, per batch and per interval, as `group` and `every` say. " +
    "Counted from the newest change back. A page ends when it has `limit` groups, or after about a second; then it has a next link. " +
    "A group may be on several pages: add up its counts. The group with the newest change is first.",
  revertChanges:
    "Undoes the changes that match all members of the body; the API calls that `revert`. Each plant that they concern returns to its state before them. " +
    "A plant that was changed since is left alone. " +
    "Each plant is one write, recorded under this token. Send the request again to continue. It is a change like others, and can itself be undone. " +
    `With \`dryRun\` nothing is changed, and the answer is JSON, for at most ${config.revertPlantsMax} plants. ` +
    "Otherwise the answer has a line for each plant that was left alone: status 412 if it was changed since, else the error of its write. " +
    "Lines with counts show progress; `complete` is true in the last one. If the work was interrupted, the last line has `complete: false`, a status and an error. " +
    "With `Prefer: respond-async` it is a job, as for `PATCH /plants`.",
  listJobs:
    "The work of requests with `Prefer: respond-async`, the oldest first: all that runs, by any token and on any service of this store, and what ended before. " +
    `At most ${JOBS_RUNNING_MAX} run at a time. ${JOBS_MAX} are kept. ` +
    `A service that shuts down ends its jobs after a commit. One that is killed leaves them \`lost\` after ${config.jobLostSeconds} seconds. ` +
    "Send the request again, with the same batch, and the work continues.",
  stopJob:
    "The job changes nothing after the answer, and ends within two seconds. Its changes stay; `POST /changes/revert` undoes them by the batch.",
  listWebhooks: "All webhooks by name, without their secrets.",
  addWebhook: `Sends every change from now on to a URL, signed, in order and at least once. At most ${WEBHOOKS_MAX} webhooks.`,
  readWebhook: "The webhook, without its secret.",
  removeWebhook: "An event in flight may still arrive.",
  testWebhook: "The event has the type `webhook.test`.",
  replayWebhook: "Sends the changes after that number again, even if the webhook was paused.",
  skipWebhook:
    "Skips the change that failed and resumes at once, even if the webhook was paused. Does nothing if none has failed, so it is safe to repeat.",
  pauseWebhook: "Nothing is sent until the webhook is resumed.",
  resumeWebhook: "Continues from its cursor at once.",
  rotateWebhook: "For 24 hours events are signed with both secrets.",
  listTokens:
    "A page of all tokens, revoked ones included, in the order of their ids; the next page is in the `Link` header, which the " +
    "last page does not have. The answer never has the token itself.",
  createToken:
    "Answers with the token, which is shown only once. A token cannot grant a scope that it lacks, a later expiry " +
    "than its own, or a higher rate. Each token has a rate of its own, so a rate does not bound what a token with " +
    "`tokens:manage` can do through others. " +
    "If the answer is lost, the name is taken: revoke that token, and create it again.",
  revokeToken:
    "Instances that can ask the store refuse the token within 5 seconds. The last token that can manage tokens cannot be revoked, unless the service has PLANTSTORE_TOKEN.",
  showActivity: `The last ${(SAMPLES_MAX * config.sampleSeconds) / 60} minutes in intervals, oldest first, with counts per interval; and recent requests, newest first.`,
  isAlive: "Answers as long as the process runs.",
  isReady:
    "Answers 200 if a write was committed and synced within the last second and the service is not shutting down.",
  describeApi: "The description of the interface, in OpenAPI 3.1.",
});
