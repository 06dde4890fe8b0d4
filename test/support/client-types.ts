/** What compiles against the client's types, and what must not. */

import {
  Client,
  type ErrorName,
  type NewPlant,
  type Outcome,
  type Plant,
  ServiceError,
  type Versioned,
} from "@plantstore/client";

export async function compile(client: Client, signal: AbortSignal): Promise<void> {
  const created: "created" | "replayed" = await client.create({ id: 1n, name: "Rose" });
  await client.create({ id: 1n, name: "Rose", tag: undefined }, { signal, retriesMax: 3 });
  const { plant, etag }: Versioned = await client.get(1n);
  const tag: string | undefined = plant.tag;
  const changed: Versioned | undefined = await client.get(1n, { ifNoneMatch: etag });
  await client.replace(plant, { ifMatch: etag });
  await client.remove(plant.id, {
    ifMatch: etag,
    onRetry: (error, waitMs) => [error.stack, waitMs],
  });
  const next: bigint | undefined = (await client.listPage({ after: 1n, order: "desc" })).next;
  for await (const { id } of client.list({ tag: "shrub" })) id satisfies bigint;
  for await (const block of client.exportBlocks()) block satisfies readonly Plant[];
  for await (const one of client.listTags("s")) one satisfies string;
  const rows = [{ id: 1n, name: "Rose", row: 7 }];
  for await (const settled of client.createAll(rows)) {
    settled.plant.row satisfies number;
    settled.outcome satisfies Outcome;
  }
  await client.createBatch(rows, (index, outcome) => {
    if (typeof outcome !== "string") outcome.reason satisfies ErrorName | undefined;
    index.toFixed();
  });
  void [created, tag, changed, next];
  for await (const { id } of client.list({ tag: "shrub", after: 1n })) id satisfies bigint;
  for await (const change of client.changes())
    if (change.type === "created") change.plant.name satisfies string;
    else if (change.type === "replaced") [change.plant.name, change.before.name] satisfies string[];
    else change.before.name satisfies string;
  (await client.listChangePage()).newest satisfies number;
  const bare: Plant = { id: 1n, name: "Rose" };
  const { token } = await client.createToken({ name: "till", scopes: ["plants:read"] });
  for await (const { name } of client.listTokens()) name satisfies string;
  (await client.addWebhook({ url: "https://shop.example/" })).secret satisfies string;
  const own = new Client("http://127.0.0.1", token, {
    fetch,
    headers: { via: "x" },
    retriesMax: 1,
  });
  void [bare, own];

  // @ts-expect-error: a number may have lost digits
  await client.create({ id: 1, name: "Rose" });
  // @ts-expect-error: a plant has a name
  await client.create({ id: 1n });
  // @ts-expect-error: a tag is text
  await client.create({ id: 1n, name: "Rose", tag: null });
  // @ts-expect-error: a number may have lost digits
  await client.get(1);
  // @ts-expect-error: with ifNoneMatch there may be nothing new
  const sure: Versioned = await client.get(1n, { ifNoneMatch: etag });
  // @ts-expect-error: headers are for the whole client
  await client.get(1n, { headers: {} });
  for await (const change of client.changes())
    if (change.type === "removed")
      // @ts-expect-error: a plant that was removed is no more
      change.plant.name satisfies string;
  // @ts-expect-error: there are two orders
  await client.listPage({ order: "up" });
  // @ts-expect-error: a list has no limit; a page has
  client.list({ limit: 5 });
  // @ts-expect-error: plants, not ids
  client.createAll([1n, 2n]);
  // @ts-expect-error: what came from the service does not change
  plant.name = "Tulip";
  // @ts-expect-error: the service has no such error
  const reason: ErrorName = "id_missing";
  void [sure, reason];
}

export const isTaken = (error: unknown): boolean =>
  error instanceof ServiceError && error.reason === "id_taken" && error.code === 3001;

export const toNew = (plant: Plant): NewPlant => plant;
