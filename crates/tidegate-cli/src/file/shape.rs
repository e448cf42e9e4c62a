//! What a value of the file may be.
//!
//! A [`Shape`] is data. [`Look::at`] holds a value against it and notes what does not fit; `schema`
//! writes it as JSON Schema. So both know the same keys, and what is decoded afterwards needs to look
//! only at what several values mean together.

use super::mistakes::{Mistakes, Source, push_plain, quoted};
use std::ops::Range;
use std::rc::Rc;
use tidegate::core::duration;
use tidegate::core::graph::nearest;
use toml::Spanned;
use toml::de::{DeString, DeTable, DeValue};

pub(crate) type Value<'t> = Spanned<DeValue<'t>>;
pub(crate) type Name<'t> = Spanned<DeString<'t>>;

/// What a value may be.
#[derive(Debug)]
pub(crate) enum Shape {
    /// A text of at least one character.
    Text(&'static str),
    /// Any text.
    AnyText(&'static str),
    /// A text that can be read in a certain way.
    Form(&'static Form),
    /// One of these.
    Words(&'static [&'static str]),
    /// A whole number in these bounds.
    Whole(i64, i64),
    /// A number in these bounds.
    Number(f64, f64),
    /// A text with a unit, or a whole number of seconds.
    Duration { zero: bool },
    /// A list of such values, with at least so many.
    List(&'static str, &'static Shape, usize),
    /// A table whose keys are names that the user gives.
    Map(&'static str, &'static Shape),
    /// A table with these keys.
    Table(&'static Table),
    /// One of several, which differ in their TOML type.
    Any(&'static [Shape]),
}

/// A text that can be read in a certain way.
#[derive(Debug)]
pub(crate) struct Form {
    /// What it is, in words.
    pub(crate) words: &'static str,
    /// The same as a regular expression.
    pub(crate) pattern: &'static str,
    pub(crate) fits: fn(&str) -> bool,
}

/// A table with known keys.
#[derive(Debug)]
pub(crate) struct Table {
    /// What it is, as in "unknown key in a task".
    pub(crate) what: &'static str,
    /// How it is written, where a table is expected and something else is found.
    pub(crate) example: &'static str,
    pub(crate) keys: &'static [Key],
    /// Exactly one of these is there.
    pub(crate) one_of: &'static [&'static str],
    /// What others call these keys.
    pub(crate) synonyms: &'static [(&'static str, &'static [&'static str])],
}

/// A key of a table.
#[derive(Debug)]
pub(crate) struct Key {
    pub(crate) name: &'static str,
    pub(crate) shape: Shape,
    /// What it is for, in a sentence.
    pub(crate) about: &'static str,
    pub(crate) needed: bool,
}

impl Table {
    pub(crate) fn key(&self, name: &str) -> Option<&'static Key> {
        self.keys.iter().find(|key| key.name == name)
    }

    /// What may have been meant by a key that is not known.
    fn meant(&self, name: &str) -> String {
        let plain = snake_case(name);
        let names = || self.keys.iter().map(|key| key.name);
        if let Some(name) = self.synonym(&plain) {
            // Others count the first attempt too.
            let note =
                if name == "retries" { ", and counts the attempts after the first" } else { "" };
            format!("here it is called \"{name}\"{note}")
        } else if let Some(name) = names().find(|name| *name == plain) {
            format!("did you mean \"{name}\"?")
        } else if let Some((home, name)) = super::keys::home_of(&plain) {
            let called = if name == plain { String::new() } else { format!(", as {name}") };
            format!("it belongs in {home}{called}")
        } else if let Some(name) = nearest(&plain, names()) {
            format!("did you mean \"{name}\"?")
        } else {
            format!("the keys here are {}", listed(names(), "and"))
        }
    }

    /// Whether a key is there under this name or one that others have for it.
    pub(super) fn has(&self, table: &DeTable<'_>, name: &str) -> bool {
        let other = |key: &Name<'_>| self.synonym(&snake_case(key.get_ref())) == Some(name);
        table.contains_key(name) || table.keys().any(other)
    }

    /// The key that others call this.
    pub(super) fn synonym(&self, plain: &str) -> Option<&'static str> {
        let found = self.synonyms.iter().find(|(_, others)| others.contains(&plain));
        found.map(|(name, _)| *name)
    }
}

/// `dependsOn` and `depends-on` as `depends_on`.
fn snake_case(name: &str) -> String {
    let mut plain = String::new();
    for letter in name.chars() {
        if letter.is_uppercase() && plain.ends_with(|before: char| before.is_lowercase()) {
            plain.push('_');
        }
        match letter {
            '-' | ' ' | '.' => plain.push('_'),
            _ => plain.extend(letter.to_lowercase()),
        }
    }
    plain
}

/// `a, b or c`.
pub(super) fn listed<T: AsRef<str>>(words: impl IntoIterator<Item = T>, last: &str) -> String {
    let words: Vec<T> = words.into_iter().collect();
    let mut list = String::new();
    for (index, word) in words.iter().enumerate() {
        match index {
            0 => {}
            _ if index + 1 == words.len() => list.extend([" ", last, " "]),
            _ => list.push_str(", "),
        }
        list.push_str(word.as_ref());
    }
    list
}

impl Shape {
    /// What would be right.
    fn words(&self) -> String {
        match self {
            Shape::Text(what) | Shape::AnyText(what) => (*what).to_owned(),
            Shape::Form(form) => form.words.to_owned(),
            Shape::Words(words) => listed(words.iter().map(|word| format!("\"{word}\"")), "or"),
            Shape::Whole(min, max) if *max >= i64::from(i32::MAX) && *min >= 0 => {
                format!("a whole number of at least {min}")
            }
            Shape::Whole(i64::MIN, _) => "a whole number".to_owned(),
            Shape::Whole(min, max) => format!("a whole number from {min} to {max}"),
            Shape::Number(min, max) => format!("a number from {min} to {max}"),
            Shape::Duration { zero } => {
                let above = if *zero { "" } else { " above 0" };
                format!(
                    "a duration{above}, such as \"90s\", \"1h30m\" or a whole number of seconds"
                )
            }
            Shape::List(what, ..) | Shape::Map(what, _) => (*what).to_owned(),
            Shape::Table(table) => table.example.to_owned(),
            Shape::Any(shapes) => listed(shapes.iter().map(Shape::words), "or"),
        }
    }

    /// The largest whole number that this can be.
    fn most(&self) -> Option<i64> {
        match self {
            Shape::Whole(_, max) => Some(*max),
            Shape::Duration { .. } => Some(i64::MAX),
            Shape::Any(shapes) => shapes.iter().find_map(Shape::most),
            _ => None,
        }
    }

    /// Whether the value is of a TOML type that this can be.
    fn is_kind(&self, value: &DeValue<'_>) -> bool {
        match self {
            Shape::Text(_) | Shape::AnyText(_) | Shape::Form(_) | Shape::Words(_) => value.is_str(),
            Shape::Whole(..) => value.is_integer(),
            Shape::Number(..) => value.is_integer() || value.is_float(),
            Shape::Duration { .. } => value.is_integer() || value.is_str(),
            Shape::List(..) => value.is_array(),
            Shape::Map(..) | Shape::Table(_) => value.is_table(),
            Shape::Any(shapes) => shapes.iter().any(|shape| shape.is_kind(value)),
        }
    }

    /// Whether a value of the right kind that has no parts fits.
    fn fits(&self, value: &DeValue<'_>) -> bool {
        match self {
            Shape::Text(_) => value.as_str().is_some_and(|text| !text.trim().is_empty()),
            Shape::Form(form) => value.as_str().is_some_and(form.fits),
            Shape::Words(words) => value.as_str().is_some_and(|text| words.contains(&text)),
            Shape::Whole(min, max) => {
                whole_number(value).is_some_and(|number| (*min..=*max).contains(&number))
            }
            Shape::Number(min, max) => {
                number(value).is_some_and(|number| (*min..=*max).contains(&number))
            }
            Shape::Duration { zero } => {
                super::shape::duration(value).is_some_and(|time| *zero || !time.is_zero())
            }
            _ => true,
        }
    }
}

/// The value as a whole number, if it is one that fits.
pub(super) fn whole_number(value: &DeValue<'_>) -> Option<i64> {
    let number = value.as_integer()?;
    i64::from_str_radix(number.as_str(), number.radix()).ok()
}

/// The value as a number, if it is one.
pub(super) fn number(value: &DeValue<'_>) -> Option<f64> {
    match value {
        DeValue::Float(number) => number.as_str().parse().ok(),
        _ => whole_number(value).map(|number| number as f64),
    }
}

/// The value as a duration, if it is one.
pub(super) fn duration(value: &DeValue<'_>) -> Option<std::time::Duration> {
    match value {
        DeValue::String(text) => duration::parse(text).ok(),
        _ => {
            let seconds = u64::try_from(whole_number(value)?).ok()?;
            Some(std::time::Duration::from_secs(seconds))
        }
    }
}

/// Where mistakes are noted while a text is looked at.
pub(super) struct Look<'m> {
    pub(super) source: &'m Rc<Source>,
    pub(super) mistakes: &'m mut Mistakes,
}

impl Look<'_> {
    pub(super) fn wrong(&mut self, at: Range<usize>, what: impl Into<String>) {
        self.mistakes.add(self.source, at, what);
    }

    /// Holds the value of a key against its shape, with everything in it.
    pub(super) fn at(&mut self, key: &str, value: &Value<'_>, shape: &Shape) {
        let fitting = match shape {
            Shape::Any(shapes) => shapes.iter().find(|one| one.is_kind(value.get_ref())),
            one => Some(one).filter(|one| one.is_kind(value.get_ref())),
        };
        let Some(fitting) = fitting.filter(|one| one.fits(value.get_ref())) else {
            return self.unfit(key, value, shape);
        };
        if let Some(text) = value.get_ref().as_str()
            && text.contains('\0')
        {
            let what = format!("{key} has a NUL character in it, which no command can be given");
            return self.wrong(value.span(), what);
        }
        match (fitting, value.get_ref()) {
            (Shape::List(_, _, least), DeValue::Array(list)) if list.len() < *least => {
                self.unfit(key, value, shape);
            }
            (Shape::List(_, item, _), DeValue::Array(list)) => {
                let one = match item {
                    Shape::Table(_) => key.to_owned(),
                    _ => format!("an item of {key}"),
                };
                list.iter().for_each(|value| self.at(&one, value, item));
            }
            (Shape::Map(_, item), DeValue::Table(table)) => {
                for (name, value) in table.iter() {
                    self.at(&format!("{key}.{}", plain(name.get_ref())), value, item);
                }
            }
            (Shape::Table(known), DeValue::Table(table)) => self.table(key, table, known),
            _ => {}
        }
    }

    /// Holds the keys of a table against those that are known.
    pub(super) fn table(&mut self, path: &str, table: &DeTable<'_>, known: &Table) {
        for (name, value) in table.iter() {
            match known.key(name.get_ref()) {
                Some(key) if path.is_empty() => self.at(key.name, value, &key.shape),
                Some(key) => self.at(&format!("{path}.{}", key.name), value, &key.shape),
                None => {
                    let (name_is, meant) = (quoted(name.get_ref()), known.meant(name.get_ref()));
                    let what = format!("unknown key {name_is} in {}: {meant}", known.what);
                    self.wrong(name.span(), what);
                }
            }
        }
    }

    /// Says that a value cannot be this, and what it must be.
    fn unfit(&mut self, key: &str, value: &Value<'_>, shape: &Shape) {
        let mut found = String::new();
        match value.get_ref() {
            DeValue::Array(list) if list.is_empty() => found.push_str("an empty list"),
            DeValue::Array(_) => found.push_str("a list"),
            DeValue::Table(_) => found.push_str("a table"),
            DeValue::String(text) => found = quoted(text),
            _ => push_plain(&mut found, self.source.text.get(value.span()).unwrap_or_default(), 40),
        }
        let most = shape.most().filter(|_| value.get_ref().is_integer() && !found.starts_with('-'));
        let over = most.filter(|&most| whole_number(value.get_ref()).is_none_or(|it| it > most));
        let what = match over {
            Some(most) => format!("{key} cannot be {found}; it must be at most {most}"),
            None => format!("{key} cannot be {found}; it must be {}", shape.words()),
        };
        let near = value.get_ref().as_str().and_then(|text| match shape {
            Shape::Words(words) => nearest(text, words.iter().copied()),
            _ => None,
        });
        let near = near.map_or(String::new(), |near| format!("; did you mean \"{near}\"?"));
        self.wrong(value.span(), what + &near);
    }
}

/// A name as part of a path of keys.
fn plain(name: &str) -> String {
    let bare = |letter: char| letter.is_ascii_alphanumeric() || letter == '_' || letter == '-';
    match !name.is_empty() && name.chars().all(bare) {
        true => name.to_owned(),
        false => quoted(name),
    }
}
