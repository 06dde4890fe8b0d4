/** Programs that use @plantstore/client as it is: they create, read, replace and remove one plant after the other. */

import { Client } from "../../client/client.ts";
import { TEST_TOKEN } from "./service.ts";

export function startCallers(url: string, length: number, firstId = 1n) {
  const client = new Client(url, TEST_TOKEN);
  const errors: string[] = [];
  let nextId = firstId;
  const callers = {
    calls: 0,
    isOver: false,
    /** All that a call rejected with since the last time. */
    takeErrors: () => errors.splice(0),
    async [Symbol.asyncDispose](): Promise<void> {
      callers.isOver = true;
      await working;
    },
  };
  const work = async (): Promise<void> => {
    while (!callers.isOver) {
      const id = nextId++;
      try {
        await client.create({ id, name: "new" });
        const { etag } = await client.get(id);
        const replaced = await client.replace({ id, name: "replaced" }, { ifMatch: etag });
        await client.remove(id, { ifMatch: replaced.etag });
        callers.calls += 4;
      } catch (error) {
        errors.push(`a call for ${id} failed: ${(error as Error).message}`);
      }
    }
  };
  const working = Promise.all(Array.from({ length }, work));
  return callers;
}
