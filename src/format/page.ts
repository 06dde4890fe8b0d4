/** A page of plants as text: JSON, NDJSON or CSV. */

import type { PageForm, PageText, PlantPage } from "../domain/page.ts";
import { formatNdjson, formatStoredPlants } from "../domain/plant.ts";
import { formatCsv } from "./csv.ts";

const formats = { json: formatStoredPlants, ndjson: formatNdjson, csv: formatCsv };

export const formatPage = ({ plants, next }: PlantPage, form: PageForm): PageText => ({
  text: formats[form](plants),
  next,
});
