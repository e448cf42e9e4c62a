//! What is waited for before anything begins, as it is written on the command line.

use crate::file::{Awaited, Command, EVERY, WaitFor, is_address, is_url};
use tidegate::duration;

/// As in `file:in.csv`.
///
/// # Errors
/// What is wrong about it, and what would be right.
pub(super) fn parse(text: &str) -> Result<WaitFor, String> {
    let (kind, rest) = text.split_once(':').unwrap_or((text, ""));
    let unfit = |right: &str| Err(format!("behind {kind}: there must be {right}"));
    let what = match kind {
        // An address that begins as they do says itself what it is.
        "http" | "https" if rest.starts_with("//") && is_url(text) => {
            Awaited::Http(text.to_owned())
        }
        "http" if is_url(rest) => Awaited::Http(rest.to_owned()),
        "http" => return unfit("an address that begins with http:// or https://"),
        "tcp" if is_address(rest) => Awaited::Tcp(rest.to_owned()),
        "tcp" => return unfit("a host and a port, such as localhost:5432"),
        "delay" => match duration::parse(rest).ok().filter(|time| !time.is_zero()) {
            Some(time) => Awaited::Delay(time),
            None => return unfit("a duration above 0, such as 90s or 5m"),
        },
        "file" | "command" | "signal" if rest.trim().is_empty() => {
            return unfit(match kind {
                "file" => "a path",
                "command" => "a line for the shell",
                _ => "the name of a signal",
            });
        }
        "file" => Awaited::File { path: rest.into(), unchanged_for: None },
        "command" => Awaited::Command(Command::Line(rest.to_owned())),
        "signal" => Awaited::Signal(rest.to_owned()),
        _ => {
            let right =
                "file:PATH, tcp:HOST:PORT, http:URL, command:LINE, signal:NAME or delay:TIME";
            return Err(format!("it must be {right}"));
        }
    };
    Ok(WaitFor { what, every: EVERY, timeout: None })
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::time::Duration;

    #[test]
    fn what_is_waited_for_is_a_kind_and_what_it_is() {
        let what = |text| parse(text).unwrap().what;
        assert_eq!(what("file:a:b"), Awaited::File { path: "a:b".into(), unchanged_for: None });
        assert_eq!(what("tcp:localhost:80"), Awaited::Tcp("localhost:80".to_owned()));
        for text in ["http:https://a/b", "https://a/b"] {
            assert_eq!(what(text), Awaited::Http("https://a/b".to_owned()));
        }
        assert_eq!(what("delay:2m"), Awaited::Delay(Duration::from_secs(120)));
        assert_eq!(what("signal:go"), Awaited::Signal("go".to_owned()));
        assert_eq!(what("command:a b"), Awaited::Command(Command::Line("a b".to_owned())));
        for text in
            ["", "x", "file", "file:", "tcp:x", "http:x", "delay:0", "delay:x", "signal: ", "ftp:x"]
        {
            assert!(parse(text).is_err(), "{text}");
        }
    }
}
