//! Whether what is stored contradicts itself, and putting that right.
//!
//! A repair is an operation of a request, like every change. Each is handed in by itself, and not with what
//! the worker has to say: a store with something wrong in it may refuse one of them, and that must be
//! in the way of nothing else.

use super::Engine;
use std::collections::BTreeSet;
use std::fmt;
use std::pin::Pin;
use std::sync::Arc;
use tidegate_core::audit::Repair;
use tidegate_core::store::{Finding, Operation, OperationOutcome, Request, RequestId, StoreError};

/// An audit of the store. Made by [`Engine::audit`]; awaiting it does it.
#[derive(Debug)]
#[must_use = "nothing is looked at until it is awaited"]
pub struct Audit {
    engine: Engine,
    thorough: bool,
}

impl Audit {
    /// Also asks the database to check its file, table by table. On a SQLite file with a million runs
    /// that takes seconds, in which the log is not folded back and grows with what is written.
    pub fn thorough(self) -> Self {
        Audit { thorough: true, ..self }
    }
}

impl IntoFuture for Audit {
    type Output = Result<Vec<Finding>, StoreError>;
    type IntoFuture = Pin<Box<dyn Future<Output = Self::Output> + Send>>;

    fn into_future(self) -> Self::IntoFuture {
        Box::pin(async move {
            let shared = &self.engine.shared;
            let mut findings = shared.store.audit().await?;
            if self.thorough {
                findings.extend(shared.files.check_files().await?);
            }
            Ok(findings)
        })
    }
}

/// What came of a repair.
#[derive(Debug, Clone)]
pub struct Repaired {
    /// What was to be put right.
    pub repair: Repair,
    /// Whether anything had to be changed: it may have been right by then. Or why that failed.
    pub changed: Result<bool, StoreError>,
}

impl fmt::Display for Repaired {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Repaired { repair, changed } = self;
        match changed {
            Ok(true) => write!(f, "{repair}: put right"),
            Ok(false) => write!(f, "{repair}: nothing to do"),
            Err(error) => write!(f, "{repair}: {error}"),
        }
    }
}

impl Engine {
    /// Every way in which what is stored contradicts itself. A healthy store has none.
    ///
    /// It can be asked for at any time, beside any number of workers: it reads a little at a time, and
    /// nobody waits for it. [`RULES`](super::RULES) says what is looked at;
    /// [`Finding::meaning`] what it means; [`repair`](Self::repair) puts right what has a repair.
    /// A worker that is stopped or hangs is a finding too.
    ///
    /// # Errors
    /// The store cannot be read.
    ///
    /// # Examples
    /// ```
    /// # #[tokio::main(flavor = "current_thread")]
    /// # async fn main() -> Result<(), Box<dyn std::error::Error>> {
    /// # use tidegate::{Engine, Task, TaskError, Context, Workflow};
    /// # async fn nothing(_: &mut Context) -> Result<(), TaskError> { Ok(()) }
    /// # let workflow = Workflow::of(Task::new("nothing", nothing))?;
    /// # let engine = Engine::builder("memory:").workflow(workflow).start().await?;
    /// for finding in engine.audit().await? {
    ///     println!("{finding}\n  {}", finding.meaning());
    /// }
    /// # Ok(())
    /// # }
    /// ```
    pub fn audit(&self) -> Audit {
        Audit { engine: self.clone(), thorough: false }
    }

    /// Puts right what was found, where it [can be](Finding::repair); what cannot is passed over, and
    /// is for a person. Each thing is looked at again first, and left as it is where it is right.
    ///
    /// # Cancel safety
    /// Dropping the future leaves open which repairs were done; they may be asked for again.
    pub async fn repair(&self, findings: &[Finding]) -> Vec<Repaired> {
        let repairs = findings.iter().filter_map(|finding| finding.repair.clone());
        // Many findings may have the same repair.
        let repairs: BTreeSet<Repair> = repairs.collect();
        let mut repaired = Vec::with_capacity(repairs.len());
        for repair in repairs {
            let changed = self.repair_one(repair.clone()).await;
            repaired.push(Repaired { repair, changed });
        }
        repaired
    }

    async fn repair_one(&self, repair: Repair) -> Result<bool, StoreError> {
        let operations = vec![Operation::Repair(repair)];
        let id = RequestId(fastrand::u64(1..1 << 63));
        let request = Request { operations, ..Request::new(id, self.shared.clock.request_clock()) };
        let reply = self.shared.store.request(Arc::new(request)).await?;
        Ok(reply.operations.contains(&OperationOutcome::Yes))
    }
}
