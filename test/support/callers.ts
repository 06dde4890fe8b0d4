/** Programs that use @plantstore/client as it is: they create, read, replace and remove one plant after the other. */

import { Client } from "../../client/client.ts";
import { TEST_TOKEN } from "./service.ts";

export class Callers implements AsyncDisposable {
  calls = 0;
  private readonly client: Client;
  private readonly working: Promise<unknown>;
  private readonly errors: string[] = [];
  private nextId: bigint;
  private isOver = false;

  constructor(url: string, length: number, firstId = 1n) {
    this.client = new Client(url, TEST_TOKEN);
    this.nextId = firstId;
    this.working = Promise.all(Array.from({ length }, () => this.work()));
  }

  /** All that a call rejected with since the last time. */
  takeErrors(): string[] {
    return this.errors.splice(0);
  }

  async [Symbol.asyncDispose](): Promise<void> {
    this.isOver = true;
    await this.working;
  }

  private async work(): Promise<void> {
    const { client } = this;
    while (!this.isOver) {
      const id = this.nextId++;
      try {
        await client.create({ id, name: "new" });
        const { etag } = await client.get(id);
        const replaced = await client.replace({ id, name: "replaced" }, { ifMatch: etag });
        await client.remove(id, { ifMatch: replaced.etag });
        this.calls += 4;
      } catch (error) {
        this.errors.push(`a call for ${id} failed: ${(error as Error).message}`);
      }
    }
  }
}
