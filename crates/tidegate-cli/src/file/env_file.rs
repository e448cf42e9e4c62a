//! Files of variables: lines `KEY=VALUE`.
//!
//! `export ` before a line, lines that are empty, and `#` with what follows it are passed over. A
//! value in '…' is taken as it is, in "…" the escapes \n, \r, \t, \", \\ and \$ are known, and without
//! quotes it ends at ` #` or the end of the line. Deliberately absent: variables in values, and values
//! of several lines.

use super::find::read_text;
use super::mistakes::Source;
use super::shape::{Look, Value};
use std::ops::Range;
use std::path::Path;
use std::rc::Rc;

/// The variables of the file under this key. What is wrong is noted in the line where it stands.
pub(super) fn read(look: &mut Look<'_>, value: &Value<'_>, folder: &Path) -> Vec<(String, String)> {
    let Some(named) = value.get_ref().as_str().filter(|path| !path.trim().is_empty()) else {
        return Vec::new();
    };
    let text = match read_text(&folder.join(named)) {
        Ok(text) => text,
        Err(error) => {
            look.wrong(value.span(), format!("cannot read the variables in {named}: {error}"));
            return Vec::new();
        }
    };
    // Spoken of as the command file is: from where the user stands.
    let path = look.source.path.with_file_name(named);
    let source = Rc::new(Source { path, text, secret: true });
    let mut look = Look { source: &source, mistakes: &mut *look.mistakes };
    let mut variables = Vec::new();
    let mut at = 0;
    for line in source.text.split_inclusive('\n') {
        match variable(line) {
            Ok(variable) => variables.extend(variable),
            Err((place, what)) => look.wrong(at + place.start..at + place.end, what),
        }
        at += line.len();
    }
    variables
}

type Wrong = (Range<usize>, String);

/// The variable of a line, if it has one.
fn variable(line: &str) -> Result<Option<(String, String)>, Wrong> {
    let whole = line.trim_end();
    let mut start = whole.len() - whole.trim_start().len();
    if let Some(rest) = whole[start..].strip_prefix("export ") {
        start = whole.len() - rest.trim_start().len();
    }
    let body = &whole[start..];
    if body.is_empty() || body.starts_with('#') {
        return Ok(None);
    }
    let Some(equals) = body.find('=') else {
        return Err((start..whole.len(), "this is no variable: write KEY=VALUE".to_owned()));
    };
    let name = body[..equals].trim_end();
    let letter = |(index, letter): (usize, char)| {
        letter == '_' || letter.is_ascii_alphabetic() || index > 0 && letter.is_ascii_digit()
    };
    if name.is_empty() || !name.chars().enumerate().all(letter) {
        let what =
            "a variable is named by letters, digits and _, and begins with none of the digits";
        return Err((start..start + equals.max(1), what.to_owned()));
    }
    let value = content(&body[equals + 1..])
        .map_err(|what| (start + equals + 1..whole.len(), what.to_owned()))?;
    if value.contains('\0') {
        return Err((
            start..whole.len(),
            "a variable cannot have a NUL character in it".to_owned(),
        ));
    }
    Ok(Some((name.to_owned(), value)))
}

/// What is meant by what stands behind the equals sign.
fn content(text: &str) -> Result<String, &'static str> {
    let text = text.trim();
    let (value, rest) = if let Some(inside) = text.strip_prefix('\'') {
        let (value, rest) =
            inside.split_once('\'').ok_or("the quote ' is not closed in this line")?;
        (value.to_owned(), rest)
    } else if let Some(inside) = text.strip_prefix('"') {
        escaped(inside)?
    } else {
        let end = if text.starts_with('#') {
            Some(0)
        } else {
            text.find([' ', '\t']).and_then(|_| comment(text))
        };
        (text[..end.unwrap_or(text.len())].trim_end().to_owned(), "")
    };
    let rest = rest.trim_start();
    match rest.is_empty() || rest.starts_with('#') {
        true => Ok(value),
        false => Err("something follows the closing quote: put all of the value inside"),
    }
}

/// Where a comment begins: at a `#` behind a space.
fn comment(text: &str) -> Option<usize> {
    let hash = |(at, _): &(usize, &str)| text[..*at].ends_with([' ', '\t']);
    text.match_indices('#').find(hash).map(|(at, _)| at)
}

/// A text up to the closing quote, with its escapes, and what follows the quote.
fn escaped(inside: &str) -> Result<(String, &str), &'static str> {
    let mut value = String::new();
    let mut letters = inside.char_indices();
    while let Some((at, letter)) = letters.next() {
        match letter {
            '"' => return Ok((value, &inside[at + 1..])),
            '\\' => match letters.next().map(|(_, letter)| letter) {
                Some('n') => value.push('\n'),
                Some('r') => value.push('\r'),
                Some('t') => value.push('\t'),
                Some(letter @ ('"' | '\\' | '$')) => value.push(letter),
                _ => {
                    return Err(
                        "an escape is one of \\n, \\r, \\t, \\\", \\\\ and \\$; or use '…'",
                    );
                }
            },
            _ => value.push(letter),
        }
    }
    Err("the quote \" is not closed in this line")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_line_is_a_variable_or_nothing() {
        for (line, value) in [
            ("A=b\n", Some("b")),
            ("A=b\r\n", Some("b")),
            ("export A=b", Some("b")),
            ("  A = b c  ", Some("b c")),
            ("A=", Some("")),
            ("A=b # why", Some("b")),
            ("A=b#c", Some("b#c")),
            ("A=# why", Some("")),
            ("A='b # c' # why", Some("b # c")),
            ("A='\\n'", Some("\\n")),
            ("A=\"b\\n\\\"c\\\"\"", Some("b\n\"c\"")),
            ("A=\"ä\"", Some("ä")),
            ("A=b=c", Some("b=c")),
            ("", None),
            ("# A=b", None),
        ] {
            let found = variable(line).unwrap_or_else(|(_, what)| panic!("{line}: {what}"));
            assert_eq!(found.map(|(_, value)| value).as_deref(), value, "{line}");
        }
    }

    #[test]
    fn a_line_that_is_no_variable_is_refused() {
        for line in [
            "A",
            "=b",
            "1A=b",
            "A B=c",
            "ä=b",
            "A='b",
            "A=\"b",
            "A=\"\\x\"",
            "A='b'c",
            "A=\"b\" c",
            "export",
        ] {
            assert!(variable(line).is_err(), "{line}");
        }
    }
}
