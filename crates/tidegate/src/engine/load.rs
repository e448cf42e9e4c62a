//! The load of this process and its machine, as the system tells it.
//!
//! A [`Meter`] reads what Linux writes under `/proc` and, where the process stands under a limit, in
//! its control group (version 2): then the machine is as large as that limit. How much processor time
//! is used is the difference of two readings, so the first sample does not know. Texts are read by
//! pure functions, which take whatever they are given; what is not there, or makes no sense, is `None`.
//!
//! Deliberately absent: control groups of version 1; other systems, where nothing is known.

use std::fs::File;
use std::io::Read;
use std::time::{Duration, Instant};
use tidegate_core::Timestamp;
use tidegate_core::load::{Pressure, Sample};

/// Linux tells times of processes in hundredths of seconds, whatever its own clock does.
const TICKS_PER_SECOND: f64 = 100.0;

/// More of a file is not read. Of the largest, what is wanted stands at its beginning.
const FILE_MAX: u64 = 1 << 20;

/// More levels of control groups are not looked at.
const LEVELS_MAX: usize = 64;

/// Measures the load, from one call to the next.
#[derive(Debug, Default)]
pub(super) struct Meter {
    before: Option<Counters>,
}

/// What only grows.
#[derive(Debug)]
struct Counters {
    at: Instant,
    /// Ticks of this process.
    process: Option<u64>,
    /// Ticks of the machine in which it was busy, and all.
    machine: Option<(u64, u64)>,
    /// Microseconds of the group whose processor time is bounded, with its folder.
    group: Option<(String, u64)>,
}

impl Meter {
    /// How things stand now.
    pub(super) fn sample(&mut self, at: Timestamp) -> Sample {
        self.measure(at, Instant::now(), read)
    }

    fn measure(
        &mut self,
        at: Timestamp,
        now: Instant,
        read: impl Fn(&str) -> Option<String>,
    ) -> Sample {
        let mut sample = Sample::new(at);
        let stat = read("/proc/stat").unwrap_or_default();
        let groups = groups(&read);
        let machine_cores = cores(&stat);
        let processors = tightest_cpu(&groups, machine_cores, &read);
        sample.machine.cores = processors.as_ref().map(|(_, cores)| *cores).or(machine_cores);

        let whole = read("/proc/meminfo").and_then(|text| memory(&text));
        let limit = tightest_memory(&groups, whole.map(|(total, _)| total), &read);
        let (total, used) = limit.map(|(_, max, used)| (max, used)).or(whole).unzip();
        sample.machine.memory_max = total;
        sample.machine.memory = total.zip(used).and_then(|(total, used)| fraction(used, total));

        sample.process.memory = read("/proc/self/status").and_then(|text| resident(&text));
        let process = read("/proc/self/stat").and_then(|text| ticks(&text));
        let group = processors.as_ref().and_then(|(folder, _)| {
            Some((folder.clone(), used_micros(&read(&format!("{folder}/cpu.stat"))?)?))
        });
        let counters = Counters { at: now, process, machine: busy(&stat), group };
        if let Some(before) = self.before.take() {
            let elapsed = now.saturating_duration_since(before.at);
            sample.process.cpu = counters.process_since(&before, elapsed);
            sample.machine.cpu = match sample.machine.cores.filter(|_| processors.is_some()) {
                Some(cores) => counters.group_since(&before, elapsed, cores),
                None => counters.machine_since(&before),
            };
        }
        self.before = Some(counters);

        let own = groups.first().filter(|_| processors.is_some() || limit.is_some());
        sample.pressure = pressure(own.map(String::as_str), &read);
        sample
    }
}

impl Counters {
    /// How many processors the process has kept busy.
    fn process_since(&self, before: &Counters, elapsed: Duration) -> Option<f64> {
        let ticks = self.process?.checked_sub(before.process?)?;
        per_second(ticks as f64 / TICKS_PER_SECOND, elapsed)
    }

    /// The fraction of time in which the machine was busy.
    fn machine_since(&self, before: &Counters) -> Option<f64> {
        let ((busy, all), (busy_before, all_before)) = (self.machine?, before.machine?);
        fraction(busy.checked_sub(busy_before)?, all.checked_sub(all_before)?)
    }

    /// The fraction that the group has used of so many processors.
    fn group_since(&self, before: &Counters, elapsed: Duration, cores: f64) -> Option<f64> {
        let ((folder, used), (folder_before, used_before)) =
            (self.group.as_ref()?, before.group.as_ref()?);
        let micros = used.checked_sub(*used_before).filter(|_| folder == folder_before)?;
        Some((per_second(micros as f64 / 1e6, elapsed)? / cores).clamp(0.0, 1.0))
    }
}

fn per_second(seconds: f64, elapsed: Duration) -> Option<f64> {
    let elapsed = elapsed.as_secs_f64();
    (elapsed > 0.0).then(|| seconds / elapsed)
}

fn fraction(part: u64, whole: u64) -> Option<f64> {
    (whole > 0).then(|| (part as f64 / whole as f64).clamp(0.0, 1.0))
}

/// What a file says, as far as it can be read.
fn read(path: &str) -> Option<String> {
    let mut bytes = Vec::new();
    File::open(path).ok()?.take(FILE_MAX).read_to_end(&mut bytes).ok()?;
    Some(String::from_utf8_lossy(&bytes).into_owned())
}

/// Ticks in which a process has computed, of `/proc/PID/stat`.
fn ticks(text: &str) -> Option<u64> {
    // Its name stands in parentheses, and may have any in it.
    let (_, after) = text.rsplit_once(')')?;
    let mut fields = after.split_ascii_whitespace().skip(11);
    let [user, system] = [fields.next()?, fields.next()?].map(str::parse::<u64>);
    user.ok()?.checked_add(system.ok()?)
}

/// Bytes of memory of a process, of `/proc/PID/status`.
fn resident(text: &str) -> Option<u64> {
    kilobytes(text, "VmRSS:")
}

/// Bytes of memory there are, and in use, of `/proc/meminfo`.
fn memory(text: &str) -> Option<(u64, u64)> {
    let (total, available) = (kilobytes(text, "MemTotal:")?, kilobytes(text, "MemAvailable:")?);
    Some((total, total.saturating_sub(available)))
}

fn kilobytes(text: &str, name: &str) -> Option<u64> {
    let line = text.lines().find_map(|line| line.strip_prefix(name))?;
    line.trim().strip_suffix("kB")?.trim_end().parse::<u64>().ok()?.checked_mul(1_024)
}

/// Ticks in which a machine was busy, and all, of `/proc/stat`. What others have taken of a virtual
/// machine's time was not to be had, and counts as busy.
fn busy(text: &str) -> Option<(u64, u64)> {
    let line = text.lines().find_map(|line| line.strip_prefix("cpu "))?;
    // What guests have computed is part of what their hosts have.
    let ticks = line.split_ascii_whitespace().take(8).map(str::parse::<u64>);
    let ticks = ticks.collect::<Result<Vec<_>, _>>().ok()?;
    let idle = ticks.get(3)?.checked_add(ticks.get(4).copied().unwrap_or(0))?;
    let all = ticks.iter().try_fold(0_u64, |sum, ticks| sum.checked_add(*ticks))?;
    Some((all.checked_sub(idle)?, all))
}

/// How many processors there are, of `/proc/stat`.
fn cores(text: &str) -> Option<f64> {
    let is_core = |line: &&str| {
        let name = line.strip_prefix("cpu");
        name.is_some_and(|name| name.starts_with(|digit: char| digit.is_ascii_digit()))
    };
    let cores = text.lines().filter(is_core).count();
    (cores > 0).then_some(cores as f64)
}

/// The folders of the control group of this process and of all groups around it, as far as they are
/// seen: the innermost first.
fn groups(read: impl Fn(&str) -> Option<String>) -> Vec<String> {
    let found = read("/proc/self/cgroup").zip(read("/proc/self/mountinfo"));
    let found = found.and_then(|(own, mounts)| Some((group(&own)?.to_owned(), mount(&mounts)?)));
    let Some((group, (root, folder))) = found else { return Vec::new() };
    // A group outside of what is seen here has its limits where they cannot be read.
    let inside = if root == "/" { Some(&*group) } else { group.strip_prefix(&*root) };
    let Some(inside) = inside.filter(|inside| inside.is_empty() || inside.starts_with('/')) else {
        return Vec::new();
    };
    let mut inside = inside.trim_end_matches('/');
    let mut groups = Vec::new();
    while groups.len() < LEVELS_MAX {
        groups.push(format!("{folder}{inside}"));
        match inside.rsplit_once('/') {
            Some((around, _)) => inside = around,
            None => break,
        }
    }
    groups
}

/// The control group of a process, of `/proc/PID/cgroup`.
fn group(text: &str) -> Option<&str> {
    let path = text.lines().find_map(|line| line.strip_prefix("0::"))?;
    let leads_out = path.split('/').any(|part| part == "..");
    (path.starts_with('/') && !leads_out).then_some(path)
}

/// Where control groups are seen, of `/proc/PID/mountinfo`: which group, and in which folder.
fn mount(text: &str) -> Option<(String, String)> {
    text.lines().find_map(|line| {
        let (left, right) = line.split_once(" - ")?;
        let mut left = left.split(' ').skip(3);
        let (root, folder) = (left.next()?, left.next()?);
        let is_it = right.split(' ').next() == Some("cgroup2");
        // A path with spaces is written in another way; nobody has such.
        let is_plain = folder.starts_with('/') && !folder.contains('\\');
        let folder = folder.trim_end_matches('/');
        (is_it && is_plain).then(|| (root.to_owned(), folder.to_owned()))
    })
}

/// The group with the tightest bound on processors, if that is tighter than the machine.
fn tightest_cpu(
    groups: &[String],
    cores: Option<f64>,
    read: impl Fn(&str) -> Option<String>,
) -> Option<(String, f64)> {
    let bounds = groups.iter().filter_map(|folder| {
        let quota = quota(&read(&format!("{folder}/cpu.max"))?)?;
        Some((folder.clone(), quota))
    });
    let tight = bounds.filter(|(_, quota)| cores.is_none_or(|cores| *quota < cores));
    tight.min_by(|(_, one), (_, other)| one.total_cmp(other))
}

/// The group with the tightest bound on memory, if that is tighter than the machine: that bound, and
/// what is in use of it. Pages of files that nobody has looked at of late can be had back at once.
fn tightest_memory(
    groups: &[String],
    total: Option<u64>,
    read: impl Fn(&str) -> Option<String>,
) -> Option<(&String, u64, u64)> {
    let number = |folder: &str, name: &str| -> Option<u64> {
        read(&format!("{folder}/{name}"))?.trim().parse().ok()
    };
    let bounds = groups.iter().filter_map(|folder| Some((folder, number(folder, "memory.max")?)));
    let tight = bounds.filter(|(_, max)| total.is_none_or(|total| *max < total));
    let (folder, max) = tight.min_by_key(|(_, max)| *max)?;
    let current = number(folder, "memory.current")?;
    let stat = read(&format!("{folder}/memory.stat")).unwrap_or_default();
    let file = keyed(&stat, "inactive_file").unwrap_or(0);
    Some((folder, max, current.saturating_sub(file)))
}

/// How many processors a group may use, of `cpu.max`.
fn quota(text: &str) -> Option<f64> {
    let mut fields = text.split_ascii_whitespace();
    let [quota, period] = [fields.next()?, fields.next()?].map(str::parse::<u64>);
    let (quota, period) = (quota.ok()?, period.ok()?);
    (quota > 0 && period > 0).then(|| quota as f64 / period as f64)
}

/// Microseconds that a group has computed, of `cpu.stat`.
fn used_micros(text: &str) -> Option<u64> {
    keyed(text, "usage_usec")
}

/// A number by its name.
fn keyed(text: &str, name: &str) -> Option<u64> {
    let fields = text.lines().filter_map(|line| line.split_once(' '));
    let mut named = fields.filter(|(key, _)| *key == name);
    named.next()?.1.trim().parse().ok()
}

/// The pressure on a group, or on the whole machine.
fn pressure(group: Option<&str>, read: impl Fn(&str) -> Option<String>) -> Option<Pressure> {
    let of = |what: &str| {
        let own = group.and_then(|folder| read(&format!("{folder}/{what}.pressure")));
        some_avg10(&own.or_else(|| read(&format!("/proc/pressure/{what}")))?)
    };
    let mut pressure = Pressure::default();
    (pressure.cpu, pressure.memory, pressure.io) = (of("cpu"), of("memory"), of("io"));
    (pressure != Pressure::default()).then_some(pressure)
}

/// The fraction of the last ten seconds in which something waited.
fn some_avg10(text: &str) -> Option<f64> {
    let line = text.lines().find_map(|line| line.strip_prefix("some "))?;
    let percent = line.split(' ').find_map(|field| field.strip_prefix("avg10="))?;
    let percent = percent.parse::<f64>().ok().filter(|percent| percent.is_finite())?;
    Some((percent / 100.0).clamp(0.0, 1.0))
}

#[cfg(test)]
mod tests;
