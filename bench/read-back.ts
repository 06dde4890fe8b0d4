/** What was acknowledged has to be there, as it was sent: asked by the server's own GET. */

import { ask, checkPlant, type Server, tag, WrongAnswer } from "./servers/server.ts";
import { CONNECTIONS } from "./settings.ts";

const SAMPLE_LENGTH = 20;

interface Sent {
  readonly kind: string;
  readonly connections?: number;
}

/**
 * Looks for some of the plants that were sent. One that is missing may have been in flight when the round
 * ended, of which there is one a connection: then all are looked for, and no more than that may be missing.
 */
export async function readBack(
  server: Server,
  ids: readonly number[],
  { kind, connections = CONNECTIONS }: Sent,
): Promise<void> {
  // The tags of a round that draws them at random are known to nobody.
  const expectedTag = kind === "create-tagged" ? undefined : tag;
  const isThere = (id: number): Promise<boolean> => findPlant(server, id, expectedTag);
  const sample = Array.from(
    { length: Math.min(SAMPLE_LENGTH, ids.length) },
    () => ids[Math.floor(Math.random() * ids.length)] ?? Number.NaN,
  );
  const isComplete = (await Promise.all(sample.map(isThere))).every(Boolean);
  if (isComplete) return;
  let missing = 0;
  for (const id of ids) {
    if (!(await isThere(id))) missing++;
    if (missing > connections)
      throw new WrongAnswer(
        `more than ${connections} of ${ids.length} plants that were sent are not there, ${id} for one`,
      );
  }
}

async function findPlant(
  { url, api }: Server,
  id: number,
  expectedTag: string | undefined,
): Promise<boolean> {
  const response = await ask(`${url}${api.getPath}/${id}`);
  const answer: unknown = await response.json();
  // Directus answers 403 for what is not there, so as not to tell whether it is.
  if (response.status === 404 || response.status === 403) return false;
  if (response.status !== 200)
    throw new WrongAnswer(`GET of plant ${id} answers ${response.status}`);
  checkPlant(api, answer, expectedTag);
  return true;
}
