/** The same service as it is usually written with Express: one INSERT a request, so one commit a request. */

import express from "express";
import { z } from "zod";
import { insert, printDurability, select, selectPage } from "./store.js";

const { PORT, BENCH_TOKEN } = process.env;

const NewPlant = z.object({ id: z.int(), name: z.string().min(1), tag: z.string().optional() });
const Page = z.object({
  after: z.coerce.number().int().default(Number.MIN_SAFE_INTEGER),
  limit: z.coerce.number().int().min(1).max(1000).default(100),
});

const app = express();
app.use((request, response, next) => {
  if (request.get("authorization") === `Bearer ${BENCH_TOKEN}`) return next();
  response.status(401).json({ error: 401, message: "missing or wrong token" });
});
app.use(express.json());

app.post("/plants", (request, response) => {
  const parsed = NewPlant.safeParse(request.body);
  if (!parsed.success)
    return response.status(400).json({ error: 400, message: parsed.error.message });
  const { id, name, tag } = parsed.data;
  try {
    insert.run(id, name, tag ?? null);
  } catch (error) {
    if (error.code !== "SQLITE_CONSTRAINT_PRIMARYKEY") throw error;
    return response.status(409).json({ error: 409, message: "the id is taken" });
  }
  response.json({ name, tag });
});

app.get("/plants/:id", (request, response) => {
  const plant = select.get(Number(request.params.id));
  if (plant === undefined) return response.status(404).json({ error: 404, message: "no plant" });
  response.json(plant);
});

app.get("/plants", (request, response) => {
  const parsed = Page.safeParse(request.query);
  if (!parsed.success)
    return response.status(400).json({ error: 400, message: parsed.error.message });
  response.json(selectPage.all(parsed.data.after, parsed.data.limit));
});

app.listen(Number(PORT), "127.0.0.1", printDurability);
