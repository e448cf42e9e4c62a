//! The attribute [`#[task]`](macro@task). Use it by way of the crate `tidegate`.
//!
//! - `expand`: what comes to stand beside the function.
//! - `options`: what is written in the brackets, as calls of the methods of `Task`.
//! - `signature`: whether a function has the shape of a task.
//! - `mistakes`: everything found wrong, to be said at once.
//!
//! The macro knows shapes and words; types are the compiler's. It makes nothing that could not be
//! written by hand, and registers nothing anywhere.

mod expand;
mod mistakes;
mod options;
mod signature;

use proc_macro::TokenStream;

/// Makes a task of an async function.
///
/// The function stays as it is and can be called as before. Beside it, under the same name and as
/// visible as the function, stand `ID`, the name of the task, and `task()`, which makes the
/// [`Task`](../tidegate/struct.Task.html):
///
/// ```
/// use tidegate::{Context, TaskError, TaskHandle, Workflow, task};
/// # use std::time::Duration;
///
/// #[task]
/// async fn extract(context: &mut Context) -> Result<u64, TaskError> {
///     Ok(context.input().as_u64().unwrap_or(1))
/// }
///
/// #[task(after = [extract], retries = 3, backoff = "2s", timeout = "10m")]
/// async fn load(context: &mut Context, handle: &TaskHandle) -> Result<u64, TaskError> {
///     let rows: u64 = context.output(extract::ID)?;
///     handle.sleep(Duration::from_millis(rows)).await?;
///     Ok(rows)
/// }
///
/// let etl = Workflow::builder("etl")
///     .task(extract::task())
///     .task(load::task().retries(9))
///     .build()?;
/// # Ok::<(), tidegate::error::WorkflowError>(())
/// ```
///
/// It is written `async fn name(context: &mut Context) -> Result<T, E>`, with a `handle:
/// &TaskHandle` behind the context if it waits without its slot. What it makes is of this form:
///
/// ```
/// # use tidegate::{Context, TaskError};
/// # async fn extract(_: &mut Context) -> Result<u64, TaskError> { Ok(1) }
/// # #[allow(non_camel_case_types)]
/// enum extract {}
/// impl extract {
///     const ID: &'static str = "extract";
///     fn task() -> tidegate::Task {
///         tidegate::Task::new(Self::ID, extract)
///     }
/// }
/// # let _ = extract::task();
/// ```
///
/// # Options
///
/// Each is a method of `Task` with the same name, and what is written here can be changed by
/// calling it: `load::task().retries(9)`.
///
/// | option | value | without it |
/// |---|---|---|
/// | `id` | a text of at least one character | the name of the function |
/// | `after` | a task or a list of tasks: the path of a function that is a task, or a name in quotes | nothing |
/// | `retries` | a whole number | 0 |
/// | `backoff` | a duration, the same each time; or an expression of type `Backoff` | `Backoff::default()` |
/// | `timeout` | a duration above 0 | no limit |
/// | `queue_timeout` | a duration above 0 | no limit |
/// | `deadline` | a duration above 0 | no limit |
/// | `weight` | a whole number of at least 1 | 1 |
/// | `priority` | a whole number of seconds, also below 0 | 0 |
/// | `limits` | a limit or a list: a name in quotes, a name with a number of units, an expression of type `LimitUse` | none |
/// | `when` | `all_succeeded`, `all_done`, `any_failed` or `any_succeeded` | `all_succeeded` |
/// | `each` | the name of the list over which the task is mapped | runs once |
/// | `parkable` | nothing, or a truth value: whether it may wait as a row | waits in memory |
/// | `crate` | the path of the crate `tidegate`, where it has another name | `::tidegate` |
///
/// A duration is `"250ms"`, `"90s"`, `"1h30m"`, a whole number of seconds, or an expression of type
/// `Duration`. Numbers and rules can be expressions too.
///
/// A path in `after` is checked by the compiler; a name in quotes is checked when the workflow is
/// built.
///
/// # Errors
///
/// What cannot be a task is refused where it is written: a function that is not async, is generic,
/// takes `self`, no context, or more than a context and a handle, or returns nothing. So is a module
/// or type of the same name in the same place, since that name is taken.
#[proc_macro_attribute]
pub fn task(options: TokenStream, item: TokenStream) -> TokenStream {
    expand::task(options.into(), item.into()).into()
}
