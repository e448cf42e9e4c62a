//! The error a task ends with.

use crate::wait::{InvalidWait, TimedOut, WaitError};
use std::error::Error;
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

/// Why a task failed; or its wish to be run again later.
///
/// Opaque, and made by `?` from any error, from `&str` and from `String`:
///
/// ```
/// use tidegate::TaskError;
///
/// fn read() -> Result<String, TaskError> {
///     let text = std::fs::read_to_string("/proc/self/comm")?;
///     if text.is_empty() {
///         Err("the file is empty")?;
///     }
///     Ok(text)
/// }
/// # read().map_err(|e| e.to_string()).unwrap();
/// ```
///
/// Like other catch-all errors it does not implement [`std::error::Error`] itself;
/// [`source`](Self::source) gives what it was made from.
#[derive(Clone)]
pub struct TaskError {
    // One word: results carry it, and most have none.
    inner: Arc<Inner>,
}

struct Inner {
    class: Class,
    source: Source,
}

/// Shared, because a permanent error is made from another one.
type Source = Arc<dyn Error + Send + Sync>;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Class {
    Ordinary,
    Permanent,
    Snooze(Duration),
}

impl TaskError {
    fn new(class: Class, source: Source) -> Self {
        TaskError { inner: Arc::new(Inner { class, source }) }
    }

    /// An error that another attempt would not mend: the task is not retried.
    pub fn permanent(error: impl Into<TaskError>) -> Self {
        TaskError::new(Class::Permanent, error.into().inner.source.clone())
    }

    /// Not a failure: the task wants to be run again after `delay`, or after 100 ms if that is less.
    /// Uses no attempt. For a short pause inside the task there is
    /// [`TaskHandle::sleep`](crate::TaskHandle::sleep).
    pub fn snooze(delay: Duration) -> Self {
        let source: Box<dyn Error + Send + Sync> = format!("snoozed for {delay:?}").into();
        TaskError::new(Class::Snooze(delay), Arc::from(source))
    }

    /// Whether another attempt would not mend it.
    pub fn is_permanent(&self) -> bool {
        self.inner.class == Class::Permanent
    }

    /// The delay, if this is a [`snooze`](Self::snooze).
    pub fn snoozed(&self) -> Option<Duration> {
        match self.inner.class {
            Class::Snooze(delay) => Some(delay),
            _ => None,
        }
    }

    /// The wait that ended the task, if one did, also where another error was made from it.
    pub fn wait_error(&self) -> Option<&WaitError> {
        chain(&*self.inner.source).find_map(|error| error.downcast_ref())
    }

    /// Whether a wait ended the task because its time was up.
    pub(crate) fn is_wait_timeout(&self) -> bool {
        chain(&*self.inner.source).any(|error| error.is::<TimedOut>())
    }

    /// What an error made from this one has as its cause.
    pub(crate) fn as_cause(&self) -> &(dyn Error + 'static) {
        &*self.inner
    }

    /// What it was made from.
    pub fn source(&self) -> &(dyn Error + Send + Sync + 'static) {
        &*self.inner.source
    }
}

impl<E: Into<Box<dyn Error + Send + Sync>>> From<E> for TaskError {
    fn from(error: E) -> Self {
        let error = error.into();
        // A condition's own error stays what it was.
        if let Some(WaitError::Failed(own)) = error.downcast_ref() {
            return own.clone();
        }
        TaskError::new(Class::of(&*error), Arc::from(error))
    }
}

impl Class {
    /// The class of an error that may have been made from another one.
    fn of(error: &(dyn Error + 'static)) -> Self {
        let class = chain(error).find_map(|error| {
            let inner = error.downcast_ref::<Inner>().map(|inner| inner.class);
            // A wait that makes no sense is not made better by another attempt.
            let permanent = error.is::<Permanent>() || error.is::<InvalidWait>();
            inner.or_else(|| permanent.then_some(Class::Permanent))
        });
        class.unwrap_or(Class::Ordinary)
    }
}

/// The cause of an error that another attempt would not mend. It says nothing of its own.
#[derive(Debug)]
pub(crate) struct Permanent;

impl fmt::Display for Permanent {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("another attempt would not mend it")
    }
}

impl Error for Permanent {}

/// Causes that are looked at.
const CAUSES_MAX: usize = 100;

/// An error and its causes.
fn chain<'e>(error: &'e (dyn Error + 'static)) -> impl Iterator<Item = &'e (dyn Error + 'static)> {
    // One that names itself as its cause would go on for ever.
    std::iter::successors(Some(error), |&error| error.source()).take(CAUSES_MAX)
}

impl fmt::Debug for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl fmt::Display for Inner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.source.fmt(f)
    }
}

impl Error for Inner {
    fn source(&self) -> Option<&(dyn Error + 'static)> {
        self.source.source()
    }
}

/// The message, with the messages of its causes behind colons.
impl fmt::Display for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let mut said = String::new();
        let marks =
            |error: &&(dyn Error + 'static)| error.is::<TimedOut>() || error.is::<Permanent>();
        for error in chain(&*self.inner.source).filter(|error| !marks(error)) {
            let message = error.to_string();
            // Some errors repeat their cause in their own message.
            if !said.ends_with(&message) {
                f.write_str(if said.is_empty() { "" } else { ": " })?;
                f.write_str(&message)?;
            }
            said = message;
        }
        Ok(())
    }
}

impl fmt::Debug for TaskError {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_struct("TaskError")
            .field("class", &self.inner.class)
            .field("source", &self.inner.source)
            .finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_class_of_an_error_survives_the_question_mark() {
        fn inner(error: TaskError) -> Result<(), TaskError> {
            Err(error)
        }
        fn outer(error: TaskError) -> Result<(), TaskError> {
            inner(error)?;
            Ok(())
        }
        assert!(outer(TaskError::permanent("no such customer")).unwrap_err().is_permanent());
        let snoozed = outer(TaskError::snooze(Duration::from_secs(9))).unwrap_err();
        assert_eq!(snoozed.snoozed(), Some(Duration::from_secs(9)));
        assert!(!outer("plain".into()).unwrap_err().is_permanent());
    }

    #[test]
    fn causes_are_named_once() {
        #[derive(Debug)]
        struct Outer(std::io::Error);
        impl fmt::Display for Outer {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                f.write_str("cannot read the list")
            }
        }
        impl Error for Outer {
            fn source(&self) -> Option<&(dyn Error + 'static)> {
                Some(&self.0)
            }
        }
        let error = TaskError::from(Outer(std::io::Error::other("disk on fire")));
        assert_eq!(error.to_string(), "cannot read the list: disk on fire");
    }
}
