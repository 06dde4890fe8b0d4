/** GET /tags: the tags in use, a page at a time. */

import { formatNextTagQuery, parseTagQuery } from "./query.ts";
import type { Answer, Service } from "./service.ts";

export async function listTags(request: Request, { config, store }: Service): Promise<Answer> {
  const query = parseTagQuery(request.url);
  const { tags, next } = await store.listTags(query);
  const body = JSON.stringify(tags);
  if (next === undefined) return { status: 200, body };
  const link = `<${config.basePath}/tags?${formatNextTagQuery(query, next)}>; rel="next"`;
  return { status: 200, body, headers: { link } };
}
