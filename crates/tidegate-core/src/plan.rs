//! What a run was planned to do, as it was when the run was submitted.
//!
//! A [`Plan`] is stored with its run, so that a run goes on as it began although the program that
//! runs it has changed. [`Plan::encode`] writes it as text, for people who look into the database:
//!
//! ```text
//! tidegate plan 1
//! workflow "etl" on_failure=fail_fast
//! task "extract" when=all_succeeded weight=1 priority=0 parkable=no timeout=60000000000ns
//! retry times=2 first=1000000000ns factor=2 longest=300000000000ns jitter=0.1
//! task "load" when=all_succeeded weight=2 priority=0 parkable=yes
//! after "extract"
//! retry times=0 first=1000000000ns factor=2 longest=300000000000ns jitter=0.1
//! limit "warehouse" units=1 key="customer.id"
//! end
//! ```
//!
//! A task that is done once for each item of a list ([`TaskPlan::each`]) has its items in a run of
//! their own. The plan of that run is written shortly, however many they are:
//!
//! ```text
//! tidegate plan 1
//! workflow "etl" on_failure=fail_fast
//! items count=1000
//! task "transform" when=all_succeeded weight=1 priority=0 parkable=no
//! retry times=2 first=1000000000ns factor=2 longest=300000000000ns jitter=0.1
//! end
//! ```
//!
//! Invariants: a plan is read back exactly as it was; equal plans are written as equal bytes, by
//! which stores keep each only once; what a task was not told is left out only where it means
//! "none", so that another default in a later version changes no plan; the last line is `end`, so
//! that a text that was cut off is no plan.
//!
//! Deliberately absent: what the run was given as input, and whether a plan makes sense beyond its
//! graph and its back-offs. Whoever builds a plan has checked that.

use crate::graph::{Graph, GraphError, Node, OnFailure, TaskIndex, When};
use crate::lifecycle::Rules;
use crate::{Backoff, InvalidBackoff};
use std::fmt::{self, Write as _};
use std::str::FromStr;
use std::time::Duration;

/// The version that this program writes, and the only one it reads.
const VERSION: u64 = 1;

/// How every plan begins; its version follows.
const TITLE: &str = "tidegate plan ";

/// Items that one run can have: its rows are looked at together when it is shown or cancelled.
pub const ITEMS_MAX: u32 = 100_000;

/// Of what was found in place of something else, so many characters are shown.
const SHOWN_MAX: usize = 64;

/// What a run was planned to do.
#[derive(Debug, Clone, PartialEq)]
pub struct Plan {
    workflow: String,
    graph: Graph,
    on_failure: OnFailure,
    /// One for each task of the graph, or the only one for all items.
    tasks: Vec<TaskPlan>,
    /// The task whose items these are.
    items_of: Option<String>,
}

/// What a task was planned to do, besides its place in the graph.
#[derive(Debug, Clone, PartialEq)]
pub struct TaskPlan {
    /// What bears on its life.
    pub rules: Rules,
    /// How long its body may compute in one attempt.
    pub timeout: Option<Duration>,
    /// How many slots it takes.
    pub weight: u32,
    /// Higher goes first.
    pub priority: i32,
    /// Whether it may wait as a row, without its body in memory.
    pub parkable: bool,
    /// Where the list is found for each of whose items it is done, in a run of their own.
    pub each: Option<String>,
    /// What tells what it does from what another version of it does: a task whose fingerprint is
    /// another is not taken over by a retry.
    pub fingerprint: Option<String>,
    /// The limits it has to hold while it runs.
    pub limits: Vec<LimitUse>,
}

/// What a task takes of a limit.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct LimitUse {
    /// Which limit.
    pub name: String,
    /// The path into the input of the run where the key is found, for a limit that counts for each
    /// key by itself.
    pub key: Option<String>,
    /// How much of it.
    pub units: u32,
}

impl LimitUse {
    /// One unit of the limit of this name.
    pub fn of(name: impl Into<String>) -> Self {
        LimitUse { name: name.into(), key: None, units: 1 }
    }

    /// The limit counts for each key by itself; this task's is found in its run's input at this
    /// path, as in `"customer.id"`. An item of a list has it in itself, if it is there.
    pub fn by(mut self, path: impl Into<String>) -> Self {
        self.key = Some(path.into());
        self
    }

    /// So many units of it.
    pub fn units(mut self, units: u32) -> Self {
        self.units = units;
        self
    }
}

impl From<&str> for LimitUse {
    fn from(name: &str) -> Self {
        LimitUse::of(name)
    }
}

impl From<String> for LimitUse {
    fn from(name: String) -> Self {
        LimitUse::of(name)
    }
}

impl From<(&str, u32)> for LimitUse {
    fn from((name, units): (&str, u32)) -> Self {
        LimitUse::of(name).units(units)
    }
}

impl TaskPlan {
    /// Whether it does what the other one does, as far as it can be told. All else says when and how
    /// it is done, and what has succeeded is not done again because it would be given more time now.
    pub(crate) fn does_the_same(&self, other: &TaskPlan) -> bool {
        (&self.fingerprint, &self.each) == (&other.fingerprint, &other.each)
    }
}

impl Default for TaskPlan {
    /// One slot, one attempt, and nothing asked for.
    fn default() -> Self {
        TaskPlan {
            rules: Rules::default(),
            timeout: None,
            weight: 1,
            priority: 0,
            parkable: false,
            each: None,
            fingerprint: None,
            limits: Vec::new(),
        }
    }
}

impl Plan {
    /// The plan of a run of this workflow.
    ///
    /// # Panics
    /// Unless there is one of `tasks` for each task of the graph.
    pub fn new(
        workflow: impl Into<String>,
        graph: Graph,
        on_failure: OnFailure,
        tasks: Vec<TaskPlan>,
    ) -> Self {
        assert_eq!(tasks.len(), graph.task_count(), "a plan has one entry for each task");
        Plan { workflow: workflow.into(), graph, on_failure, tasks, items_of: None }
    }

    /// The plan of the run in which a task of this workflow is done once for each of `count` items.
    ///
    /// # Panics
    /// Without items, with more than [`ITEMS_MAX`], or without a name.
    pub fn items(
        workflow: impl Into<String>,
        name: impl Into<String>,
        count: u32,
        on_failure: OnFailure,
        task: TaskPlan,
    ) -> Self {
        assert!(count <= ITEMS_MAX, "a run has at most {ITEMS_MAX} items");
        let name = name.into();
        let nodes = (0..count).map(|number| Node::new(format!("{name}[{number}]")));
        let graph = Graph::new(nodes).expect("items have names of their own and no dependencies");
        let (tasks, items_of) = (vec![task], Some(name));
        Plan { workflow: workflow.into(), graph, on_failure, tasks, items_of }
    }

    /// What the workflow is called.
    pub fn workflow(&self) -> &str {
        &self.workflow
    }

    /// Its tasks, and what they come after.
    pub fn graph(&self) -> &Graph {
        &self.graph
    }

    /// What happens to the rest of the run when a task has failed for good.
    pub fn on_failure(&self) -> OnFailure {
        self.on_failure
    }

    /// What this task was planned to do.
    ///
    /// # Panics
    /// For a task of a larger graph.
    pub fn task(&self, task: TaskIndex) -> &TaskPlan {
        match self.items_of {
            Some(_) => &self.tasks[0],
            None => &self.tasks[task.as_usize()],
        }
    }

    /// The task whose items this plan is of, if it is of items.
    pub fn items_of(&self) -> Option<&str> {
        self.items_of.as_deref()
    }

    /// The name under which workers know this task: its own, or that of the task whose item it is.
    pub fn known_as(&self, task: TaskIndex) -> &str {
        self.items_of().unwrap_or_else(|| self.graph.name(task))
    }

    /// How many tasks there are; at least 1.
    pub fn task_count(&self) -> usize {
        self.graph.task_count()
    }

    /// How many tasks come after nothing.
    pub fn root_count(&self) -> usize {
        self.graph.tasks().filter(|&task| self.graph.parents(task).is_empty()).count()
    }

    /// The plan as text in UTF-8. Equal plans give equal bytes.
    pub fn encode(&self) -> Vec<u8> {
        let mut text = String::new();
        self.write(&mut text).expect("writing to memory does not fail");
        text.into_bytes()
    }

    /// The plan that was encoded like this.
    ///
    /// # Errors
    /// Whatever [`Plan::encode`] does not write, with what is wrong about it and where.
    pub fn decode(encoded: &[u8]) -> Result<Plan, InvalidPlan> {
        let text = str::from_utf8(encoded).map_err(|error| {
            let before = &encoded[..error.valid_up_to()];
            let number = 1 + before.iter().filter(|&&byte| byte == b'\n').count();
            InvalidPlan::Line { number, wrong: BrokenLine::NotText }
        })?;
        let (title, body) = text.split_once('\n').ok_or(InvalidPlan::NoPlan)?;
        let found = title.strip_prefix(TITLE).and_then(|version| version.parse().ok());
        match found.ok_or(InvalidPlan::NoPlan)? {
            VERSION => read_plan(&mut Lines { rest: body, number: 2 }),
            found => Err(InvalidPlan::Version { found, known: VERSION }),
        }
    }

    fn write(&self, text: &mut String) -> fmt::Result {
        writeln!(text, "{TITLE}{VERSION}")?;
        writeln!(text, "workflow {} on_failure={}", Quoted(&self.workflow), self.on_failure)?;
        if self.items_of.is_some() {
            writeln!(text, "items count={}", self.task_count())?;
        }
        for (task, plan) in self.graph.tasks().zip(&self.tasks) {
            let (name, when) = (Quoted(self.known_as(task)), self.graph.when(task));
            write!(text, "task {name} when={when}")?;
            plan.write(text)?;
            for &parent in self.graph.parents(task) {
                writeln!(text, "after {}", Quoted(self.graph.name(parent)))?;
            }
            write_retry(text, &plan.rules)?;
            for LimitUse { name, key, units } in &plan.limits {
                write!(text, "limit {} units={units}", Quoted(name))?;
                match key {
                    Some(key) => writeln!(text, " key={}", Quoted(key))?,
                    None => writeln!(text)?,
                }
            }
        }
        writeln!(text, "end")
    }
}

impl TaskPlan {
    /// The rest of the line of its task.
    fn write(&self, text: &mut String) -> fmt::Result {
        let parkable = if self.parkable { "yes" } else { "no" };
        write!(text, " weight={} priority={} parkable={parkable}", self.weight, self.priority)?;
        let Rules { queue_timeout, deadline, .. } = self.rules;
        let clocks =
            [("timeout", self.timeout), ("queue_timeout", queue_timeout), ("deadline", deadline)];
        for (field, limit) in clocks {
            if let Some(limit) = limit {
                write!(text, " {field}={}ns", limit.as_nanos())?;
            }
        }
        for (field, value) in [("each", &self.each), ("fingerprint", &self.fingerprint)] {
            if let Some(value) = value {
                write!(text, " {field}={}", Quoted(value))?;
            }
        }
        writeln!(text)
    }
}

fn write_retry(text: &mut String, rules: &Rules) -> fmt::Result {
    let (backoff, factor) = (&rules.backoff, rules.backoff.factor());
    let (first, longest) = (backoff.first().as_nanos(), backoff.longest().as_nanos());
    // Adding zero takes the sign off a negative zero, which is equal to zero and is written
    // differently. The shortest text that is read back as the same number is unique.
    let (times, jitter) = (rules.retries, backoff.jitter() + 0.0);
    writeln!(
        text,
        "retry times={times} first={first}ns factor={factor} longest={longest}ns jitter={jitter}"
    )
}

/// A text in quotes, on one line whatever is in it.
struct Quoted<'t>(&'t str);

impl fmt::Display for Quoted<'_> {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_char('"')?;
        for c in self.0.chars() {
            match c {
                '"' | '\\' => write!(f, "\\{c}")?,
                '\n' => f.write_str("\\n")?,
                // The control characters and the other ends of a line. Not all that is invisible:
                // that list grows with Unicode, and equal plans would differ by who wrote them.
                '\u{2028}' | '\u{2029}' => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c if c.is_control() => write!(f, "\\u{{{:x}}}", u32::from(c))?,
                c => f.write_char(c)?,
            }
        }
        f.write_char('"')
    }
}

/// Why bytes are no plan.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum InvalidPlan {
    /// They do not begin as a plan does.
    NoPlan,
    /// A plan in a form that this program does not know.
    Version {
        /// The version it is written in.
        found: u64,
        /// The version that this program reads.
        known: u64,
    },
    /// A line that is not as it should be.
    Line {
        /// Which one, from 1.
        number: usize,
        /// What is wrong with it.
        wrong: BrokenLine,
    },
    /// The tasks make no graph.
    Graph(GraphError),
}

/// What is wrong with a line of a plan.
#[derive(Debug, Clone, PartialEq)]
#[non_exhaustive]
pub enum BrokenLine {
    /// It is not UTF-8.
    NotText,
    /// There is something else than there should be.
    Unexpected {
        /// The beginning of what is there; empty where the line, or the plan, is over.
        found: String,
        /// What should be there.
        wanted: &'static str,
    },
    /// A text in quotes does not end, or has a backslash before something it does not go with.
    Quotes,
    /// A field has a value that it cannot have.
    Value {
        /// Which field.
        field: &'static str,
        /// The beginning of its value.
        found: String,
    },
    /// A back-off makes no sense.
    Backoff(InvalidBackoff),
}

impl fmt::Display for InvalidPlan {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            InvalidPlan::NoPlan => write!(f, "it does not begin with \"{TITLE}{VERSION}\""),
            InvalidPlan::Version { found, known } => {
                write!(f, "it is a plan of version {found}, and this program reads version {known}")
            }
            InvalidPlan::Line { number, wrong } => write!(f, "line {number}: {wrong}"),
            InvalidPlan::Graph(error) => error.fmt(f),
        }
    }
}

impl fmt::Display for BrokenLine {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            BrokenLine::NotText => f.write_str("it is not UTF-8"),
            BrokenLine::Unexpected { found, wanted } if found.is_empty() => {
                write!(f, "it ends where {wanted} should be")
            }
            BrokenLine::Unexpected { found, wanted } => {
                write!(f, "{} stands where {wanted} should be", Quoted(found))
            }
            BrokenLine::Quotes => {
                f.write_str("a text in quotes does not end or has an unknown escape")
            }
            BrokenLine::Value { field, found } => {
                write!(f, "{field} cannot be {}", Quoted(found))
            }
            BrokenLine::Backoff(error) => error.fmt(f),
        }
    }
}

impl std::error::Error for InvalidPlan {
    fn source(&self) -> Option<&(dyn std::error::Error + 'static)> {
        match self {
            InvalidPlan::Line { wrong, .. } => Some(wrong),
            InvalidPlan::Graph(error) => Some(error),
            _ => None,
        }
    }
}

impl std::error::Error for BrokenLine {}

/// The lines of a plan that have not been read.
struct Lines<'t> {
    rest: &'t str,
    /// Of the next one.
    number: usize,
}

impl<'t> Lines<'t> {
    /// Reads the next line, if it is one of these.
    fn read_if<T>(
        &mut self,
        word: &str,
        read: impl FnOnce(&mut Line<'t>) -> Result<T, BrokenLine>,
    ) -> Result<Option<T>, InvalidPlan> {
        // A line that does not end was cut off, and what is left of it could mean something else.
        let Some((line, after)) = self.rest.split_once('\n') else { return Ok(None) };
        let Some(rest) = line.strip_prefix(word) else { return Ok(None) };
        let mut line = Line { rest };
        let whole = read(&mut line).and_then(|value| line.end().map(|()| value));
        let whole = whole.map_err(|wrong| self.wrong(wrong))?;
        (self.rest, self.number) = (after, self.number + 1);
        Ok(Some(whole))
    }

    fn wrong(&self, wrong: BrokenLine) -> InvalidPlan {
        InvalidPlan::Line { number: self.number, wrong }
    }

    /// The next line is none of those that could be here.
    fn unexpected(&self, wanted: &'static str) -> InvalidPlan {
        self.wrong(Line { rest: self.rest }.unexpected(wanted))
    }
}

/// What of a line has not been read. Its fields have a fixed order, each behind a space.
struct Line<'t> {
    rest: &'t str,
}

impl Line<'_> {
    /// A text in quotes, here.
    fn quoted(&mut self) -> Result<String, BrokenLine> {
        let Some(rest) = self.rest.strip_prefix('"') else {
            return Err(self.unexpected("a text in quotes"));
        };
        let mut chars = rest.chars();
        let mut text = String::new();
        loop {
            match chars.next().ok_or(BrokenLine::Quotes)? {
                '"' => break,
                '\\' => {
                    let (c, rest) = unescape(chars.as_str()).ok_or(BrokenLine::Quotes)?;
                    text.push(c);
                    chars = rest.chars();
                }
                c => text.push(c),
            }
        }
        self.rest = chars.as_str();
        Ok(text)
    }

    /// Goes behind `field`, which is written ` name=`, if that is what comes next.
    fn goes_on_with(&mut self, field: &str) -> bool {
        let rest = self.rest.strip_prefix(field);
        rest.map(|rest| self.rest = rest).is_some()
    }

    /// The text in quotes of this field, which may be missing.
    fn optional_quoted(&mut self, field: &str) -> Result<Option<String>, BrokenLine> {
        self.goes_on_with(field).then(|| self.quoted()).transpose()
    }

    /// The value of this field, which may be missing.
    fn optional<T>(
        &mut self,
        field: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<Option<T>, BrokenLine> {
        if !self.goes_on_with(field) {
            return Ok(None);
        }
        let (value, rest) = self.rest.split_at(self.rest.find(' ').unwrap_or(self.rest.len()));
        self.rest = rest;
        let field = field.trim_start().trim_end_matches('=');
        let wrong = || BrokenLine::Value { field, found: beginning(value) };
        parse(value).map(Some).ok_or_else(wrong)
    }

    /// The value of this field.
    fn field<T>(
        &mut self,
        field: &'static str,
        parse: impl FnOnce(&str) -> Option<T>,
    ) -> Result<T, BrokenLine> {
        let value = self.optional(field, parse)?;
        value.ok_or_else(|| self.unexpected(field.trim_start()))
    }

    fn end(&self) -> Result<(), BrokenLine> {
        match self.rest {
            "" => Ok(()),
            _ => Err(self.unexpected("the end of the line")),
        }
    }

    fn unexpected(&self, wanted: &'static str) -> BrokenLine {
        let found = self.rest.split('\n').next().unwrap_or_default();
        BrokenLine::Unexpected { found: beginning(found.trim_start_matches(' ')), wanted }
    }
}

/// What an escape stands for, and what comes behind it.
fn unescape(text: &str) -> Option<(char, &str)> {
    if let Some(hex) = text.strip_prefix("u{") {
        let (hex, rest) = hex.split_once('}')?;
        return Some((char::from_u32(u32::from_str_radix(hex, 16).ok()?)?, rest));
    }
    let mut chars = text.chars();
    let c = match chars.next()? {
        'n' => '\n',
        c @ ('"' | '\\') => c,
        _ => return None,
    };
    Some((c, chars.as_str()))
}

fn beginning(text: &str) -> String {
    text.chars().take(SHOWN_MAX).collect()
}

fn parsed<T: FromStr>(text: &str) -> Option<T> {
    text.parse().ok()
}

fn item_count(text: &str) -> Option<u32> {
    parsed(text).filter(|count| (1..=ITEMS_MAX).contains(count))
}

fn yes_or_no(text: &str) -> Option<bool> {
    match text {
        "yes" => Some(true),
        "no" => Some(false),
        _ => None,
    }
}

/// A task without weight would be begun without a slot.
fn parse_weight(text: &str) -> Option<u32> {
    parsed(text).map(|weight: u32| weight.max(1))
}

/// A duration in nanoseconds, with its unit.
fn duration(text: &str) -> Option<Duration> {
    const SECOND: u128 = 1_000_000_000;
    let nanos: u128 = text.strip_suffix("ns")?.parse().ok()?;
    let seconds = u64::try_from(nanos / SECOND).ok()?;
    Some(Duration::new(seconds, (nanos % SECOND) as u32))
}

fn read_plan(lines: &mut Lines<'_>) -> Result<Plan, InvalidPlan> {
    let head = lines.read_if("workflow ", |line| {
        Ok((line.quoted()?, line.field::<OnFailure>(" on_failure=", parsed)?))
    })?;
    let (workflow, on_failure) = head.ok_or_else(|| lines.unexpected("the workflow"))?;
    let items = lines.read_if("items", |line| line.field(" count=", item_count))?;
    let (mut nodes, mut tasks) = (Vec::new(), Vec::new());
    while let Some((node, task)) = read_task(lines)? {
        nodes.push(node);
        tasks.push(task);
    }
    let wanted = "a task, a limit or the end of the plan";
    lines.read_if("end", |_| Ok(()))?.ok_or_else(|| lines.unexpected(wanted))?;
    if !lines.rest.is_empty() {
        return Err(lines.unexpected("nothing, behind the end of the plan,"));
    }
    let Some(count) = items else {
        let graph = Graph::new(nodes).map_err(InvalidPlan::Graph)?;
        return Ok(Plan::new(workflow, graph, on_failure, tasks));
    };
    // The graph that they alone would make is refused for what is wrong with them.
    Graph::new(nodes.iter().cloned()).map_err(InvalidPlan::Graph)?;
    match (<[Node; 1]>::try_from(nodes), <[TaskPlan; 1]>::try_from(tasks)) {
        (Ok([Node { name, .. }]), Ok([task])) => {
            Ok(Plan::items(workflow, name, count, on_failure, task))
        }
        _ => Err(lines.unexpected("the end of the plan, behind the only task of items,")),
    }
}

fn read_task(lines: &mut Lines<'_>) -> Result<Option<(Node, TaskPlan)>, InvalidPlan> {
    let Some((mut node, mut task)) = lines.read_if("task ", read_task_line)? else {
        return Ok(None);
    };
    while let Some(parent) = lines.read_if("after ", Line::quoted)? {
        node.after.push(parent);
    }
    let retry = lines.read_if("retry", read_retry)?;
    let wanted = "a task that this one comes after, or how it is retried,";
    (task.rules.retries, task.rules.backoff) = retry.ok_or_else(|| lines.unexpected(wanted))?;
    while let Some(limit) = lines.read_if("limit ", read_limit)? {
        task.limits.push(limit);
    }
    Ok(Some((node, task)))
}

fn read_task_line(line: &mut Line<'_>) -> Result<(Node, TaskPlan), BrokenLine> {
    let node = Node::new(line.quoted()?).when(line.field::<When>(" when=", parsed)?);
    let mut task = TaskPlan {
        weight: line.field(" weight=", parse_weight)?,
        priority: line.field(" priority=", parsed)?,
        parkable: line.field(" parkable=", yes_or_no)?,
        timeout: line.optional(" timeout=", duration)?,
        ..TaskPlan::default()
    };
    task.rules.queue_timeout = line.optional(" queue_timeout=", duration)?;
    task.rules.deadline = line.optional(" deadline=", duration)?;
    task.each = line.optional_quoted(" each=")?;
    task.fingerprint = line.optional_quoted(" fingerprint=")?;
    Ok((node, task))
}

fn read_retry(line: &mut Line<'_>) -> Result<(u32, Backoff), BrokenLine> {
    let times = line.field(" times=", parsed)?;
    let first = line.field(" first=", duration)?;
    let factor = line.field(" factor=", parsed)?;
    let longest = line.field(" longest=", duration)?;
    let jitter = line.field(" jitter=", parsed)?;
    let backoff = Backoff::exponential(first, factor, longest);
    let backoff = backoff.and_then(|backoff| backoff.with_jitter(jitter));
    Ok((times, backoff.map_err(BrokenLine::Backoff)?))
}

fn read_limit(line: &mut Line<'_>) -> Result<LimitUse, BrokenLine> {
    let name = line.quoted()?;
    let units = line.field(" units=", parsed)?;
    let key = line.optional_quoted(" key=")?;
    Ok(LimitUse { name, key, units })
}
