/** What a table of texts is: each text in all languages stands together. */

export type Language = "en" | "de" | "fr" | "es";

/** A text for each plural category of the language that differs from `other`. `{count}` is the number. */
export type PluralForms = Readonly<
  Partial<Record<Intl.LDMLPluralRule, string>> & Record<"other", string>
>;

/** A text in all languages. English is the source: its placeholders are the ones that code must fill. */
type Text = Readonly<
  | Record<Language, string>
  | (Record<Language, PluralForms> & { readonly en: { readonly one: string } })
>;

export type Table = { readonly [key: string]: Text | Table };
