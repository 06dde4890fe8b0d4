/**
 * Checks values against the part of JSON Schema that our schemas are written in, so that what validates
 * is what the description shows. A library for all of JSON Schema was most of what we loaded at a start.
 */

interface TextSchema {
  readonly type: "string";
}

interface IntegerSchema {
  readonly type: "integer";
}

interface ObjectSchema {
  readonly type: "object";
  readonly required: readonly string[];
  readonly properties: Readonly<Record<string, Schema>>;
}

export type Schema = TextSchema | IntegerSchema | ObjectSchema;

/** The static type of what a schema lets through. */
export type Conforming<Of extends Schema> = Of extends ObjectSchema
  ? { readonly [Name in Of["required"][number]]: Conforming<Of["properties"][Name]> } & {
      readonly [Name in Exclude<keyof Of["properties"], Of["required"][number]>]?: Conforming<
        Of["properties"][Name]
      >;
    }
  : Of extends TextSchema
    ? string
    : number;

type Check = (value: unknown) => boolean;

export function compileCheck<const Of extends Schema>(
  schema: Of,
): (value: unknown) => value is Conforming<Of> {
  return compile(schema) as (value: unknown) => value is Conforming<Of>;
}

function compile(schema: Schema): Check {
  switch (schema.type) {
    case "string":
      return (value) => typeof value === "string";
    case "integer":
      return Number.isInteger;
    case "object":
      return compileObject(schema);
  }
}

function compileObject({ required, properties }: ObjectSchema): Check {
  const members = Object.entries(properties).map(
    ([name, schema]) => [name, compile(schema), required.includes(name)] as const,
  );
  return (value) => {
    if (typeof value !== "object" || value === null || Array.isArray(value)) return false;
    for (const [name, check, isRequired] of members) {
      if (Object.hasOwn(value, name)) {
        if (!check((value as Record<string, unknown>)[name])) return false;
      } else if (isRequired) return false;
    }
    return true;
  };
}
