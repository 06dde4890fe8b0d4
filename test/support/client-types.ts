/** What compiles against the client's types, and what must not. Other tests compile more against its sources. */

import type {
  Client,
  ErrorName,
  FailureOf,
  NewPlant,
  Refusals,
  Versioned,
} from "@plantstore/client";

/** A method that is missing has no comment with an `@operation`, or `npm run format` was not run. */
({}) as Refusals satisfies Record<Exclude<keyof Client, "request">, unknown>;

export async function compile(client: Client, created: NewPlant): Promise<void> {
  const { plant, etag }: Versioned = await client.get(1n);
  plant.tag satisfies string | undefined;
  (await client.get(1n, { ifNoneMatch: etag })) satisfies Versioned | undefined;
  await client.create(plant);
  await client.create({ ...created, tag: undefined });
  const rows = [{ id: 1n, name: "Rose", row: 7 }];
  for await (const { plant: row, outcome } of client.createAll(rows)) {
    row.row satisfies number;
    if (typeof outcome !== "string") outcome.reason satisfies ErrorName | undefined;
  }
  for await (const { plant: line, outcome } of client.upsertAll([
    { id: 1n, name: "Rose", row: 7, ifMatch: etag },
    { id: 2n, removed: true as const, row: 8 },
  ])) {
    line.row satisfies number;
    if (outcome === "replaced" || outcome === "removed") continue;
  }
  await client.patch(1n, { tag: null }, { ifMatch: etag });
  (await client.removeMatching({ tag: "x" })).removed satisfies number;
  for await (const change of client.changes())
    if (change.type === "created") change.plant.name satisfies string;
    else if (change.type === "replaced") [change.plant.name, change.before.name] satisfies string[];
    else change.before.name satisfies string;

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
  // @ts-expect-error: a name cannot be removed
  await client.patch(1n, { name: null });
  // @ts-expect-error: there are two orders
  await client.listPage({ order: "up" });
  // @ts-expect-error: a list has no limit; a page has
  client.list({ limit: 5 });
  // @ts-expect-error: plants, not ids
  client.createAll([1n, 2n]);
  // @ts-expect-error: what came from the service does not change
  plant.name = "Tulip";
  await client.remove(1n).catch(({ reason: gone }: FailureOf<"remove">) => {
    if (gone === "plant_not_found" || gone === "rate_limited") return;
    // @ts-expect-error: a removal takes no id
    if (gone === "id_taken") return;
  });
  // @ts-expect-error: the service has no such error
  const reason: ErrorName = "id_missing";
  void [sure, reason];
}
