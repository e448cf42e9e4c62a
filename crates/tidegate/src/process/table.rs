//! The table of processes, as Linux shows it under `/proc`.
//!
//! A process that ends while we look is not there; nothing here is an error because of that.

use super::notes::MARKER;
use std::collections::HashMap;
use std::fs::{self, File};
use std::io::{self, Read};
use std::sync::OnceLock;

/// A line of `/proc/PID/stat` is a few hundred bytes.
const STAT_MAX: usize = 1024;

/// One process.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Process {
    pub(super) number: i32,
    pub(super) parent: i32,
    pub(super) group: i32,
    /// In ticks since the machine was started. Number and start name a process for good.
    pub(super) start: u64,
    pub(super) living: bool,
}

impl Process {
    pub(super) fn read(number: i32) -> Option<Process> {
        let mut line = [0; STAT_MAX];
        let mut file = File::open(format!("/proc/{number}/stat")).ok()?;
        let length = file.read(&mut line).ok()?;
        parse(number, &line[..length])
    }

    /// As what it was begun, by the environment its program began with. Several, if that holds
    /// several entries of the name.
    pub(super) fn marks(&self) -> Vec<String> {
        // A process of another user is unreadable; it is not one of ours either.
        let environment = fs::read(format!("/proc/{}/environ", self.number)).unwrap_or_default();
        let entries = environment.split(|byte| *byte == 0);
        let marks = entries.filter_map(|entry| {
            let value = entry.strip_prefix(MARKER.as_bytes())?.strip_prefix(b"=")?;
            String::from_utf8(value.to_vec()).ok()
        });
        marks.collect()
    }
}

/// The program's name stands in parentheses and may hold anything, parentheses too: the numbers
/// begin after the last one.
fn parse(number: i32, line: &[u8]) -> Option<Process> {
    let name_end = line.iter().rposition(|byte| *byte == b')')?;
    let rest = std::str::from_utf8(&line[name_end + 1..]).ok()?;
    let fields: Vec<&str> = rest.split_ascii_whitespace().collect();
    let threads: u32 = fields.get(17)?.parse().ok()?;
    // The first thread of a process may be dead while others go on.
    let dead = matches!(*fields.first()?, "Z" | "X" | "x") && threads <= 1;
    Some(Process {
        number,
        parent: fields.get(1)?.parse().ok()?,
        group: fields.get(2)?.parse().ok()?,
        start: fields.get(19)?.parse().ok()?,
        living: !dead,
    })
}

/// All processes we can see, by number.
pub(super) fn all() -> io::Result<HashMap<i32, Process>> {
    let mut all = HashMap::new();
    for entry in fs::read_dir("/proc")? {
        let Ok(entry) = entry else { continue };
        let number = entry.file_name().to_str().and_then(|name| name.parse().ok());
        if let Some(process) = number.and_then(Process::read) {
            all.insert(process.number, process);
        }
    }
    Ok(all)
}

pub(super) fn has_living_member(group: i32) -> io::Result<bool> {
    Ok(all()?.values().any(|process| process.group == group && process.living))
}

/// Names this start of the machine. Empty if the system does not say; that equals no noted one.
pub(super) fn boot() -> &'static str {
    static BOOT: OnceLock<String> = OnceLock::new();
    BOOT.get_or_init(|| {
        let boot = fs::read_to_string("/proc/sys/kernel/random/boot_id").unwrap_or_default();
        boot.trim().to_owned()
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_with_parentheses_and_blanks_does_not_shift_the_fields() {
        let line = b"7 (a) Z 9 (\xff) S 3 5 5 0 -1 4194560 1 2 3 4 5 6 7 8 20 0 1 0 8123 9 9\n";
        let process = parse(7, line).unwrap();
        let expected = Process { number: 7, parent: 3, group: 5, start: 8123, living: true };
        assert_eq!(process, expected);
    }

    #[test]
    fn a_process_whose_first_thread_is_dead_lives_while_others_do() {
        let line =
            |threads: u32| format!("7 (x) Z 3 5 5 0 -1 1 1 2 3 4 5 6 7 8 20 0 {threads} 0 8 9");
        assert!(!parse(7, line(1).as_bytes()).unwrap().living);
        assert!(parse(7, line(2).as_bytes()).unwrap().living);
    }

    #[test]
    fn we_are_in_the_table() {
        let number = std::process::id().try_into().unwrap();
        let process = all().unwrap()[&number];
        assert!(process.living && process.start > 0);
        assert_eq!(Process::read(number), Some(process));
    }
}
