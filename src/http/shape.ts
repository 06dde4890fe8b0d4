/** Schemas and examples for the API description. */

export const component = (kind: string, name: string): Schema => ({
  $ref: `#/components/${kind}/${name}`,
});

export type Schema = Readonly<Record<string, unknown>>;

export interface Shape {
  readonly schema: Schema;
  readonly example: unknown;
  /** More members of the parameter's description. */
  readonly more?: Schema;
  /** It may be left out of an object or a request. */
  readonly optional?: boolean;
}

const shapeOf =
  (type: Schema) =>
  (example?: unknown, description?: string, more?: Schema): Shape => ({
    schema: { ...type, description, ...more },
    example,
  });

export const text = shapeOf({ type: "string" });
export const time = shapeOf({ type: "string", format: "date-time" });
export const integer = shapeOf({ type: "integer" });
export const int64 = shapeOf({ type: "integer", format: "int64" });
export const number = shapeOf({ type: "number" });
export const flag = shapeOf({ type: "boolean" });

export const maybe = ({ schema, example }: Shape): Shape => ({
  schema: { ...schema, type: [schema["type"], "null"] },
  example,
});

export const annotate = <Described extends Pick<Shape, "schema">>(
  shape: Described,
  description: string,
): Described => ({ ...shape, schema: { ...shape.schema, description } });

export const list = (item: Shape, description?: string, more?: Schema): Shape => ({
  schema: { type: "array", items: item.schema, description, ...more },
  example: item.example === undefined ? undefined : [item.example],
});

export type Members = Readonly<Record<string, Shape>>;

/** Every member is required, except those that are optional, or named in `optional`. An object whose members have no examples has none. */
export const object = (
  members: Members,
  { optional = [], ...more }: Schema & { readonly optional?: readonly string[] } = {},
): Shape => {
  const hasExample = Object.values(members).some(({ example }) => example !== undefined);
  return {
    schema: {
      type: "object",
      required: Object.keys(members).filter(
        (name) => members[name]?.optional !== true && !optional.includes(name),
      ),
      properties: mapValues(members, ({ schema }) => schema),
      ...more,
    },
    example: hasExample ? mapValues(members, ({ example }) => example) : undefined,
  };
};

export const mapValues = <Value, Result>(
  values: Readonly<Record<string, Value>>,
  map: (value: Value, name: string) => Result,
): Readonly<Record<string, Result>> =>
  Object.fromEntries(Object.entries(values).map(([name, value]) => [name, map(value, name)]));

/** Members of a body with the rules that judge them. A rule that is not described does not compile. */
export const describeRules = <Rules extends Readonly<Record<string, object>>>(
  rules: Rules,
  shapes: { readonly [Name in keyof Rules]: Shape },
) =>
  mapValues<Shape, object>(shapes, (shape, name) => ({ ...shape, ...rules[name] })) as {
    readonly [Name in keyof Rules]: Shape & Rules[Name];
  };

/** The shared schemas of the description, by name. */
export const schemas: Record<string, Schema> = {};

export function define(name: string, ...[members, options]: Parameters<typeof object>): Shape {
  const { schema, example } = object(members, options);
  schemas[name] = schema;
  return { schema: component("schemas", name), example };
}
