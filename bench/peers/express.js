/** The same service as it is usually written with Express: one INSERT a request, so one commit a request. */

import Database from "better-sqlite3";
import express from "express";
import { z } from "zod";

const { PORT, BENCH_TOKEN, BENCH_STORE } = process.env;

const db = new Database(BENCH_STORE);
db.pragma("journal_mode = WAL");
db.pragma("synchronous = FULL");
db.exec("CREATE TABLE IF NOT EXISTS plants (id INTEGER PRIMARY KEY, name TEXT NOT NULL, tag TEXT)");
const insert = db.prepare("INSERT INTO plants (id, name, tag) VALUES (?, ?, ?)");
const select = db.prepare("SELECT name, tag FROM plants WHERE id = ?");
const selectPage = db.prepare("SELECT id, name, tag FROM plants WHERE id > ? ORDER BY id LIMIT ?");

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

app.listen(Number(PORT), "127.0.0.1", () => {
  const [journal, synchronous] = ["journal_mode", "synchronous"].map((name) =>
    db.pragma(name, { simple: true }),
  );
  const durability = `${journal.toUpperCase()}, synchronous=${synchronous === 2 ? "FULL" : synchronous}`;
  process.stdout.write(`${JSON.stringify({ durability })}\n`);
});
