//! How each task ended, as JUnit XML.
//!
//! Cases are written when they end, so that nothing of them is kept in memory, to a file without a name
//! in the directory of the one that was asked for. The head has their numbers, which are known last: the
//! whole is written behind it when all cases are there, and only then gets its name, so that a reader
//! never finds a part of it.

use super::{How, Who};
use crate::summary::last_lines;
use std::fmt::Write as _;
use std::fs::{self, File};
use std::io::{self, BufWriter, Seek as _, Write as _};
use std::path::{Path, PathBuf};
use std::time::Duration;

/// Longest text of one case.
const TEXT_MAX: usize = 16 << 10;

pub(super) struct Junit {
    path: PathBuf,
    /// The whole, until it gets its name.
    part: PathBuf,
    cases: BufWriter<File>,
    numbers: Numbers,
    /// The first that went wrong.
    failed: Option<io::Error>,
}

#[derive(Default)]
struct Numbers {
    tests: u64,
    failures: u64,
    skipped: u64,
}

/// How one task ended.
pub(super) struct Case {
    pub(super) who: Who,
    /// Nothing if it has not ended.
    pub(super) how: Option<How>,
    pub(super) why: String,
    pub(super) took: Option<Duration>,
    pub(super) log: Option<PathBuf>,
}

impl Junit {
    /// Begins the file.
    ///
    /// # Errors
    /// It cannot be made there.
    pub(super) fn create(path: &Path) -> io::Result<Self> {
        if fs::metadata(path).is_ok_and(|there| !there.is_file()) {
            return Err(io::Error::other("that is something else than a file"));
        }
        let folder = path.parent().filter(|folder| !folder.as_os_str().is_empty());
        if let Some(folder) = folder.filter(|folder| !folder.is_dir()) {
            let what = format!("there is no folder {}; make it first", folder.display());
            return Err(io::Error::other(what));
        }
        let mut part = path.as_os_str().to_owned();
        part.push(format!(".{}.part", std::process::id()));
        let part = PathBuf::from(part);
        let cases =
            File::options().read(true).write(true).create(true).truncate(true).open(&part)?;
        // A process that dies leaves nothing behind.
        fs::remove_file(&part)?;
        let cases = BufWriter::new(cases);
        Ok(Junit { path: path.to_owned(), part, cases, numbers: Numbers::default(), failed: None })
    }

    pub(super) fn write(&mut self, case: &Case) {
        self.numbers.tests += 1;
        match case.how {
            Some(How::Failed | How::TimedOut) => self.numbers.failures += 1,
            Some(How::Succeeded) => {}
            _ => self.numbers.skipped += 1,
        }
        if self.failed.is_none() {
            self.failed = self.cases.write_all(case.to_xml().as_bytes()).err();
        }
    }

    /// All cases are written.
    ///
    /// # Errors
    /// Something of it could not be.
    pub(super) fn finish(mut self, name: &str, took: Duration) -> io::Result<()> {
        if let Some(error) = self.failed.take() {
            return Err(error);
        }
        self.cases.flush()?;
        let cases = self.cases.get_mut();
        cases.rewind()?;
        let mut whole = File::create(&self.part)?;
        whole.write_all(head(name, &self.numbers, took).as_bytes())?;
        io::copy(cases, &mut whole)?;
        whole.write_all(b"  </testsuite>\n</testsuites>\n")?;
        fs::rename(&self.part, &self.path)
    }
}

fn head(name: &str, numbers: &Numbers, took: Duration) -> String {
    let Numbers { tests, failures, skipped } = numbers;
    format!(
        "<?xml version=\"1.0\" encoding=\"UTF-8\"?>\n<testsuites>\n  \
         <testsuite name=\"{}\" tests=\"{tests}\" failures=\"{failures}\" \
         skipped=\"{skipped}\" time=\"{:.3}\">\n",
        escaped(name),
        took.as_secs_f64()
    )
}

impl Drop for Junit {
    fn drop(&mut self) {
        // Gone already if all went well.
        let _ = fs::remove_file(&self.part);
    }
}

impl Case {
    fn to_xml(&self) -> String {
        let name = escaped(self.who.label());
        let class = self.who.name.split('[').next().filter(|_| self.who.is_item);
        let class = escaped(class.unwrap_or(&self.who.name));
        let time = self.took.unwrap_or_default().as_secs_f64();
        let mut xml =
            format!("    <testcase name=\"{name}\" classname=\"{class}\" time=\"{time:.3}\"");
        let why = escaped(&self.why);
        let put = match self.how {
            Some(How::Succeeded) => write!(xml, "/>"),
            Some(How::Failed | How::TimedOut) => {
                let lines = self.log.as_deref().and_then(|log| last_lines(log).ok());
                let text = escaped(&lines.unwrap_or_default().join("\n"));
                let kind = if self.how == Some(How::TimedOut) { "timeout" } else { "failure" };
                write!(xml, ">\n      <failure message=\"{why}\" type=\"{kind}\">{text}</failure>")
                    .and_then(|()| write!(xml, "\n    </testcase>"))
            }
            Some(How::Cancelled) => skipped(&mut xml, "cancelled"),
            Some(How::Skipped) => skipped(&mut xml, "skipped"),
            None => skipped(&mut xml, "not finished"),
        };
        put.expect("writing to memory does not fail");
        xml.push('\n');
        xml
    }
}

fn skipped(xml: &mut String, why: &str) -> std::fmt::Result {
    write!(xml, ">\n      <skipped message=\"{why}\"/>\n    </testcase>")
}

/// The text as XML has it. What XML cannot say at all is replaced.
fn escaped(text: &str) -> String {
    let mut escaped = String::new();
    for letter in text.chars() {
        match letter {
            _ if escaped.len() > TEXT_MAX => break,
            '<' => escaped.push_str("&lt;"),
            '>' => escaped.push_str("&gt;"),
            '&' => escaped.push_str("&amp;"),
            '"' => escaped.push_str("&quot;"),
            '\n' => escaped.push_str("&#10;"),
            '\t' | ' '..='\u{7e}' | '\u{a0}'..='\u{fffd}' | '\u{10000}'.. => escaped.push(letter),
            _ => escaped.push('\u{fffd}'),
        }
    }
    escaped
}
