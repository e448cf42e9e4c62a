//! What is stored of the words in which a task has failed.

use std::borrow::Cow;

/// The most bytes of an error that are stored. It stands in the row of the task, in the record of the
/// end and in the event that tells of it; an error with all that a program wrote would stand there three
/// times, and one of a gigabyte no database takes.
pub const ERROR_MAX: usize = 64 << 10;

/// The text, cut where it is too long, which shows.
pub(crate) fn cut_error(text: &str) -> Cow<'_, str> {
    if text.len() <= ERROR_MAX {
        return Cow::Borrowed(text);
    }
    let kept = &text[..text.floor_char_boundary(ERROR_MAX)];
    Cow::Owned(format!("{kept}… (cut: {} bytes)", group_digits(text.len())))
}

/// A number with its digits in groups of three.
fn group_digits(number: usize) -> String {
    let digits = number.to_string();
    let mut text = String::new();
    for (at, digit) in digits.char_indices() {
        if at > 0 && (digits.len() - at).is_multiple_of(3) {
            text.push(',');
        }
        text.push(digit);
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn text_that_is_too_long_is_cut_between_characters_and_says_so() {
        assert_eq!(cut_error("short"), "short");
        let just = "x".repeat(ERROR_MAX);
        assert_eq!(cut_error(&just), just.as_str());
        let long = format!("x{}", "ü".repeat(ERROR_MAX));
        let cut = cut_error(&long);
        let kept = cut.strip_suffix("… (cut: 131,073 bytes)").unwrap();
        assert!(long.starts_with(kept) && kept.len() == ERROR_MAX - 1);
    }

    #[test]
    fn digits_stand_in_groups_of_three() {
        let texts = [7, 999, 1_000, 1_050_000_000].map(group_digits);
        assert_eq!(texts, ["7", "999", "1,000", "1,050,000,000"]);
    }
}
