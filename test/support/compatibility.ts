/** Compares two OpenAPI descriptions: would a client that was written against the first still work with the second? */

interface Schema {
  readonly $ref?: string;
  readonly type?: string | readonly string[];
  readonly enum?: readonly unknown[];
  readonly required?: readonly string[];
  readonly properties?: Readonly<Record<string, Schema>>;
  readonly items?: Schema;
  readonly minimum?: number;
  readonly maximum?: number;
  readonly [keyword: string]: unknown;
}

interface Media {
  readonly schema?: Schema;
  readonly examples?: Readonly<Record<string, { readonly value: unknown }>>;
}

interface Part {
  readonly $ref?: string;
  readonly required?: boolean;
  readonly content?: Readonly<Record<string, Media>>;
  readonly headers?: object;
}

interface Parameter {
  readonly $ref?: string;
  readonly name: string;
  readonly in: string;
  readonly required?: boolean;
  readonly schema?: Schema;
}

interface Operation {
  readonly parameters?: readonly Parameter[];
  readonly requestBody?: Part;
  readonly responses: Readonly<Record<string, Part>>;
  readonly security?: readonly object[];
}

export interface Description {
  readonly info: { readonly version: string };
  readonly security?: readonly object[];
  readonly paths: Readonly<
    Record<string, Readonly<Record<string, Operation | readonly Parameter[]>>>
  >;
  readonly components?: unknown;
}

/** Who sends the value. What the client sends may be restricted less; what the service sends may contain more. */
type Sender = "client" | "service";

/** They say something to people only. */
const annotations = new Set(["description", "title", "example", "examples", "deprecated"]);
const compared = new Set(["$ref", "type", "enum", "required", "properties", "items"]);

/** Every way in which the second description breaks a client of the first. */
export function findBreaks(released: Description, served: Description): string[] {
  const breaks: string[] = [];
  const report = (place: string, what: string): void => void breaks.push(`${place}: ${what}`);
  if (released.info.version !== served.info.version)
    report("info", `the version changed to ${served.info.version}`);
  for (const [path, methods] of Object.entries(released.paths))
    for (const [method, operation] of Object.entries(methods)) {
      if (!("responses" in operation)) continue;
      const place = `${method.toUpperCase()} ${path}`;
      const now = served.paths[path]?.[method];
      if (now === undefined || !("responses" in now)) report(place, "is gone");
      else compareOperations(place, operation, now);
    }
  const codes = listCodes(served);
  for (const [name, answer] of listCodes(released))
    if (codes.get(name) !== answer) report(`error ${name}`, "is gone or has changed");
  return breaks;

  function compareOperations(place: string, before: Operation, now: Operation): void {
    const isOpen = (description: Description, { security }: Operation): boolean =>
      (security ?? description.security ?? []).length === 0;
    if (isOpen(released, before) && !isOpen(served, now)) report(place, "needs a token");
    compareParameters(place, before, now);
    compareContents(`${place} request`, before.requestBody, now.requestBody, "client");
    if (now.requestBody?.required && !before.requestBody?.required)
      report(`${place} request`, "is required");
    for (const [status, response] of Object.entries(before.responses)) {
      // An operation that fails in fewer ways breaks no client. The codes are compared as a whole.
      if (now.responses[status] === undefined && Number(status) >= 400) continue;
      compareContents(`${place} ${status}`, response, now.responses[status], "service");
    }
  }

  function compareParameters(place: string, before: Operation, now: Operation): void {
    const keyed = (description: Description, operation: Operation): Map<string, Parameter> =>
      new Map(
        (operation.parameters ?? [])
          .map((parameter) => resolve(description, parameter))
          .map((parameter) => [`${parameter.in} parameter ${parameter.name}`, parameter]),
      );
    const old = keyed(released, before);
    const current = keyed(served, now);
    for (const [name, parameter] of old) {
      const found = current.get(name);
      if (found === undefined) report(`${place} ${name}`, "is gone");
      else compareSchemas(`${place} ${name}`, parameter.schema, found.schema, "client");
    }
    for (const [name, { required }] of current)
      if (required && !old.get(name)?.required) report(`${place} ${name}`, "is required");
  }

  function compareContents(
    place: string,
    before: Part | undefined,
    now: Part | undefined,
    sender: Sender,
  ): void {
    if (before === undefined) return;
    if (now === undefined) return report(place, "is gone");
    const [old, current] = [resolve(released, before), resolve(served, now)];
    for (const [type, media] of Object.entries(old.content ?? {})) {
      const found = current.content?.[type];
      if (found === undefined) report(place, `${type} is gone`);
      else compareSchemas(`${place} ${type}`, media.schema, found.schema, sender);
    }
    for (const name of Object.keys(old.headers ?? {}))
      if (!(name in (current.headers ?? {}))) report(place, `the header ${name} is gone`);
  }

  function compareSchemas(
    place: string,
    before: Schema | undefined,
    now: Schema | undefined,
    sender: Sender,
  ): void {
    if (before === undefined) return;
    if (now === undefined) return report(place, "has no schema any more");
    const [old, current] = [resolve(released, before), resolve(served, now)];
    // What one side may send, the other must know.
    const [sent, known] = sender === "client" ? [old, current] : [current, old];
    if (!isWithin(listOf(sent.type), listOf(known.type))) report(place, "has another type");
    if (known.enum !== undefined && !isWithin(sent.enum ?? [undefined], known.enum))
      report(place, "has other values");
    if (!isWithin(known.required ?? [], sent.required ?? []))
      report(place, sender === "client" ? "requires more" : "promises less");
    for (const [name, property] of Object.entries(old.properties ?? {})) {
      const found = current.properties?.[name];
      if (found === undefined) report(`${place}.${name}`, "is gone");
      else compareSchemas(`${place}.${name}`, property, found, sender);
    }
    compareSchemas(`${place}[]`, old.items, current.items, sender);
    if ((sent.minimum ?? -Infinity) < (known.minimum ?? -Infinity))
      report(place, "has another minimum");
    if ((sent.maximum ?? Infinity) > (known.maximum ?? Infinity))
      report(place, "has another maximum");
    // Of a keyword that is not understood, any change may break a client.
    for (const keyword of new Set([...Object.keys(old), ...Object.keys(current)]))
      if (!compared.has(keyword) && !annotations.has(keyword) && !/^m(in|ax)imum$/.test(keyword))
        if (!Bun.deepEquals(old[keyword], current[keyword])) report(place, `${keyword} changed`);
  }
}

const listOf = (type: Schema["type"]): readonly unknown[] =>
  type === undefined ? [] : [type].flat();

const isWithin = (some: readonly unknown[], all: readonly unknown[]): boolean =>
  some.every((one) => all.includes(one));

/** The part itself, or the shared one that it refers to. */
function resolve<Kind extends { readonly $ref?: string }>(
  description: Description,
  part: Kind,
): Kind {
  if (part.$ref === undefined) return part;
  const path = part.$ref.replace("#/", "").split("/");
  const found = path.reduce<unknown>(
    (node, name) => (node as Record<string, unknown> | undefined)?.[name],
    description,
  );
  if (found === undefined) throw new Error(`${part.$ref} leads nowhere`);
  return found as Kind;
}

/** Every error of every operation, with its status and number. */
function listCodes(description: Description): Map<string, string> {
  const codes = new Map<string, string>();
  for (const methods of Object.values(description.paths))
    for (const operation of Object.values(methods))
      for (const [status, response] of Object.entries(
        "responses" in operation ? operation.responses : {},
      )) {
        const { content } = resolve(description, response);
        const examples = Number(status) < 400 ? {} : content?.["application/json"]?.examples;
        for (const [name, { value }] of Object.entries(examples ?? {}))
          codes.set(name, `${status} ${(value as { error: number }).error}`);
      }
  return codes;
}
