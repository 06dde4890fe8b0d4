/** Schemas, examples and headers of the description, with links between them. */

import type { ComponentChildren, JSX } from "preact";
import { Terms } from "../console/view/controls.tsx";
import {
  type Answer,
  type Content,
  formatExample,
  formatType,
  listExamples,
  listLimits,
  nameOf,
  type Schema,
} from "./description.ts";
import { markCode } from "./markdown.tsx";

interface SchemaProps {
  readonly of: Schema;
}

const Reference = ({ to }: { readonly to: string }): JSX.Element => (
  <a href={`#/schemas/${nameOf(to)}`}>{nameOf(to)}</a>
);

const join = (parts: readonly JSX.Element[], sign: string): ComponentChildren =>
  parts.map((part, at) => (at === 0 ? part : [sign, part]));

/** The type with its limits, on one line. */
export function Type({ of: schema }: SchemaProps): JSX.Element {
  const { $ref, items, oneOf, enum: values = [] } = schema;
  const limits = listLimits(schema).join(", ");
  const codes = values.map((value) => <code key={String(value)}>{formatExample(value)}</code>);
  return (
    <>
      {$ref !== undefined ? (
        <Reference to={$ref} />
      ) : items !== undefined ? (
        <>
          array of <Type of={items} />
        </>
      ) : oneOf !== undefined ? (
        join(
          oneOf.map((one, at) => <Type key={at} of={one} />),
          " or ",
        )
      ) : (
        formatType(schema)
      )}
      {codes.length > 0 && <>: {join(codes, ", ")}</>}
      {limits !== "" && `, ${limits}`}
    </>
  );
}

/** The members of an object, or of the objects in an array, with theirs. */
export function Members({ of: { properties, items, required } }: SchemaProps): JSX.Element | null {
  if (items !== undefined) return <Members of={items} />;
  if (properties === undefined) return null;
  return (
    <Terms
      class="answers"
      of={Object.entries(properties).map(([name, member]) => [
        <>
          {name}
          {required?.includes(name) === true && <small> required</small>}
        </>,
        <>
          <small>
            <Type of={member} />
          </small>{" "}
          {markCode(member.description ?? "")}
          <Members of={member} />
        </>,
      ])}
    />
  );
}

/** What a body or an answer has, in each of its media types, and examples of it. */
export function Contents({ of: content }: { readonly of: Content }): JSX.Element {
  /** The names of NDJSON mean the same. */
  const alike = Object.groupBy(Object.entries(content), ([, media]) => JSON.stringify(media));
  return (
    <>
      {Object.values(alike).map((group = []) => {
        const [, { schema = {}, ...examples } = {}] = group[0] ?? [];
        return (
          <div key={group[0]?.[0]}>
            <p>
              {join(
                group.map(([type]) => <code key={type}>{type}</code>),
                ", ",
              )}{" "}
              <Type of={schema} />
              {schema.description !== undefined && `: ${schema.description}`}
            </p>
            <Members of={schema} />
            {listExamples(examples).map(([name, value]) => (
              <div key={name}>
                {name !== "" && <small>{name}</small>}
                <pre tabIndex={0}>{formatExample(value, isShort(value) ? undefined : 2)}</pre>
              </div>
            ))}
          </div>
        );
      })}
    </>
  );
}

const LINE_CHARACTERS = 80;

const isShort = (value: unknown): boolean => formatExample(value).length <= LINE_CHARACTERS;

export function HeaderNames({ of: { headers = {} } }: { readonly of: Answer }): JSX.Element | null {
  const names = Object.keys(headers);
  if (names.length === 0) return null;
  const links = names.map((name) => (
    <a key={name} href={`#/headers/${name}`}>
      {name}
    </a>
  ));
  return <p>Headers: {join(links, ", ")}</p>;
}
