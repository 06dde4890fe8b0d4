/** POST /plants/batch, whose answer may break off: each line that arrived counts. */

import { type StoredPlant, toBody } from "./plants.ts";
import { TEST_TOKEN } from "./service.ts";

/** The status of each plant, in their order: undefined where none arrived, and `whole` where the service judged no line. */
interface BatchAnswer {
  readonly statuses: readonly (number | undefined)[];
  readonly whole: Response | undefined;
}

export async function sendBatch(
  url: string,
  plants: readonly StoredPlant[],
  signal: AbortSignal,
): Promise<BatchAnswer> {
  const statuses: (number | undefined)[] = plants.map(() => undefined);
  try {
    const response = await fetch(`${url}/plants/batch`, {
      method: "POST",
      headers: { authorization: `Bearer ${TEST_TOKEN}`, "content-type": "application/x-ndjson" },
      body: plants.map((plant) => `${toBody(plant)}\n`).join(""),
      signal,
    });
    if (response.status !== 200) return { statuses, whole: response };
    for await (const { line, status } of readResults(response)) statuses[line - 1] = status;
  } catch (error) {
    if ((error as Error).name === "TimeoutError") throw error;
  }
  return { statuses, whole: undefined };
}

async function* readResults(response: Response): AsyncGenerator<{ line: number; status: number }> {
  const decoder = new TextDecoder();
  let text = "";
  for await (const chunk of response.body ?? []) {
    text += decoder.decode(chunk, { stream: true });
    const lines = text.split("\n");
    text = lines.pop() ?? "";
    for (const line of lines) yield JSON.parse(line) as { line: number; status: number };
  }
}
