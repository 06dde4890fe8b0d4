/** The receivers in docs/changes.md, as a reader would run them, against events that the service signs. */

import { expect, test } from "bun:test";
import { join } from "node:path";
import { listChange } from "../src/domain/change.ts";
import { createSecret, createTestEvent, sendEvent, toEvent } from "../src/webhooks/send.ts";
import { makeTemporaryFolder } from "./support/folder.ts";
import { until } from "./support/until.ts";
import { findFreePort } from "./support/postgres-files.ts";

const root = join(import.meta.dir, "..");
const document = await Bun.file(join(root, "docs/changes.md")).text();
const client = join(root, "client/client.ts");

const options = { webhooksPrivate: true, webhookSecondsMax: 15 };
const change = {
  seq: 1_767_225_605_000_000,
  atMs: 1_767_225_605_000,
  type: "created",
  id: 9_007_199_254_740_993n,
  by: undefined,
  plant: { id: 1n, name: "Fern", tag: undefined },
  before: undefined,
} as const;

for (const [language, program] of [
  ["ts", process.execPath],
  ["python", "python3"],
] as const)
  test.skipIf(Bun.which(program) === null)(
    `the receiver in ${language} takes what is signed, and nothing else`,
    async () => {
      using folder = makeTemporaryFolder();
      const sample = new RegExp(`\`\`\`${language}\\n([\\s\\S]*?)\`\`\``).exec(document)?.[1] ?? "";
      const file = join(folder.path, `receiver.${language}`);
      await Bun.write(file, sample.replace('"@plantstore/client"', JSON.stringify(client)));
      const secret = createSecret();
      const port = findFreePort();
      const { PATH = "", HOME = "" } = process.env;
      const env = { PATH, HOME, SECRET: secret, PORT: String(port) };
      const child = Bun.spawn([program, file], { env, stdout: "pipe" });
      try {
        const webhook = { url: `http://127.0.0.1:${port}/`, secret, oldSecret: undefined };
        const send = async (event: ReturnType<typeof toEvent>, by = webhook) =>
          (await sendEvent(by, event, options)).attempt;
        let tested = await send(createTestEvent());
        await until("the receiver listens", async () => {
          if (tested.status === null) tested = await send(createTestEvent());
          return tested.status !== null;
        });
        expect(tested.status).toBe(204);
        expect((await send(toEvent(listChange(change)))).status).toBe(204);
        const stranger = { ...webhook, secret: createSecret() };
        expect((await send(toEvent(listChange(change)), stranger)).status).toBe(400);
        child.kill();
        expect(await child.stdout.text()).toContain("plant.created 9007199254740993");
      } finally {
        child.kill("SIGKILL");
        await child.exited;
      }
    },
  );
