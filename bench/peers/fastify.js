/** The same service as it is usually written with Fastify: with schemas, and one INSERT a request, so one commit. */

import bearerAuth from "@fastify/bearer-auth";
import Fastify from "fastify";
import { insert, printDurability, select, selectPage } from "./store.js";

const { PORT, BENCH_TOKEN } = process.env;

const integer = { type: "integer" };
const plantFields = { name: { type: "string" }, tag: { type: ["string", "null"] } };
const newPlant = {
  type: "object",
  required: ["id", "name"],
  properties: { id: integer, name: { type: "string", minLength: 1 }, tag: { type: "string" } },
};
const plant = { type: "object", properties: plantFields };
const page = {
  type: "array",
  items: { type: "object", properties: { id: integer, ...plantFields } },
};
const error = { type: "object", properties: { error: integer, message: { type: "string" } } };

const app = Fastify();
await app.register(bearerAuth, { keys: new Set([BENCH_TOKEN]) });

app.post(
  "/plants",
  {
    schema: { body: newPlant, response: { 200: plant, 409: error } },
  },
  (request, reply) => {
    const { id, name, tag } = request.body;
    try {
      insert.run(id, name, tag ?? null);
    } catch (cause) {
      if (cause.code !== "SQLITE_CONSTRAINT_PRIMARYKEY") throw cause;
      return reply.code(409).send({ error: 409, message: "the id is taken" });
    }
    return reply.send({ name, tag });
  },
);

app.get(
  "/plants/:id",
  {
    schema: {
      params: { type: "object", properties: { id: integer } },
      response: { 200: plant, 404: error },
    },
  },
  (request, reply) => {
    const found = select.get(request.params.id);
    if (found === undefined) return reply.code(404).send({ error: 404, message: "no plant" });
    return reply.send(found);
  },
);

app.get(
  "/plants",
  {
    schema: {
      querystring: {
        type: "object",
        properties: {
          after: { type: "integer", default: Number.MIN_SAFE_INTEGER },
          limit: { type: "integer", minimum: 1, maximum: 1000, default: 100 },
        },
      },
      response: { 200: page },
    },
  },
  (request, reply) => reply.send(selectPage.all(request.query.after, request.query.limit)),
);

await app.listen({ port: Number(PORT), host: "127.0.0.1" });
printDurability();
