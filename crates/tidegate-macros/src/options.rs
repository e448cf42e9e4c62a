//! What is written in the brackets, as calls of the methods of `Task`.
//!
//! An option is a line in [`OPTIONS`] and an arm in [`argument`]. Texts, words and numbers are
//! looked at here, so that a mistake is found where it is written; any other expression is handed
//! on, and the compiler checks its type.

use crate::mistakes::{Mistakes, at};
use proc_macro2::{Ident, Span, TokenStream};
use quote::{ToTokens, quote, quote_spanned};
use std::ops::RangeInclusive;
use std::time::Duration;
use syn::ext::IdentExt;
use syn::parse::{ParseStream, Parser};
use syn::spanned::Spanned;
use syn::{Error, Expr, ExprLit, ExprPath, Lit, LitStr, Path, Token, UnOp, parse_quote_spanned};
use tidegate_core::duration;
use tidegate_core::graph::{When, nearest};

/// All options by name, each with what it takes.
const OPTIONS: [(&str, &str); 14] = [
    ("id", "a text of at least one character, as in `id = \"load\"`"),
    ("after", "tasks, each a path or a text, as in `after = [extract, \"clean\"]`"),
    ("retries", "a whole number from 0 to 4294967295, as in `retries = 3`"),
    ("backoff", "a pause, as in `backoff = \"2s\"`, or an expression of type `Backoff`"),
    ("timeout", "a duration above 0, as in `timeout = \"10m\"`"),
    ("queue_timeout", "a duration above 0, as in `queue_timeout = \"1h\"`"),
    ("deadline", "a duration above 0, as in `deadline = \"1h30m\"`"),
    ("weight", "a whole number from 1 to 4294967295, as in `weight = 2`"),
    (
        "priority",
        "a whole number of seconds from -2147483648 to 2147483647, as in `priority = -60`",
    ),
    (
        "limits",
        "limits, each a text, a text with a number of units, or an expression of type `LimitUse`, as \
         in `limits = [\"api\", (\"gpu\", 2)]`",
    ),
    ("when", "a rule, as in `when = all_done`"),
    ("parkable", "nothing, or `true` or `false`, as in `parkable = true`"),
    ("each", "the name of a list, as in `each = \"items\"`"),
    ("crate", "the path of the crate tidegate, as in `crate = other_name`"),
];

/// The options of one task.
pub(crate) struct Options {
    /// The crate `tidegate`.
    pub(crate) home: Path,
    /// The name of the task, if it is not that of the function.
    pub(crate) id: Option<LitStr>,
    /// The rest: `.retries(3).weight(2)`.
    pub(crate) calls: TokenStream,
}

impl Options {
    /// Reads what is written in the brackets. What is wrong is left out; what is not written is
    /// taken to stand `here`.
    pub(crate) fn read(tokens: TokenStream, here: Span, mistakes: &mut Mistakes) -> Self {
        let mut given = Vec::new();
        let parsed = (|input: ParseStream<'_>| pairs(input, &mut given)).parse2(tokens);
        mistakes.keep(parsed);

        let home = parse_quote_spanned!(here=> ::tidegate);
        let mut options = Options { home, id: None, calls: TokenStream::new() };
        // First, because the others are written by it.
        if let Some((name, value)) = given.iter().find(|(name, _)| name == "crate") {
            options.home = mistakes.keep(path(name, value)).unwrap_or(options.home);
        }
        for (index, (name, value)) in given.iter().enumerate() {
            if given[..index].iter().any(|(earlier, _)| earlier == name) {
                mistakes.add(at(name, format!("`{name}` is there twice: take one of them out")));
            } else if name == "id" {
                options.id = mistakes.keep(text(name, value));
            } else if name == "parkable" {
                let parkable = mistakes.keep(flag(name, value)).unwrap_or(false);
                let call = parkable.then(|| quote_spanned!(name.span()=> .#name()));
                options.calls.extend(call);
            } else if name != "crate"
                && let Some(argument) = mistakes.keep(argument(name, value, &options.home))
            {
                options.calls.extend(quote_spanned!(name.span()=> .#name(#argument)));
            }
        }
        options
    }
}

/// Names and values in the order in which they are written.
fn pairs(input: ParseStream<'_>, given: &mut Vec<(Ident, Expr)>) -> syn::Result<()> {
    while !input.is_empty() {
        let start = input.span();
        let name = Ident::parse_any(input).ok();
        if let Some(name) = name.as_ref().filter(|name| *name == "parkable")
            && !input.peek(Token![=])
        {
            given.push((name.clone(), parse_quote_spanned!(name.span()=> true)));
            if !input.is_empty() {
                input.parse::<Token![,]>()?;
            }
            continue;
        }
        let name = name.filter(|_| input.peek(Token![=]));
        let name = name.ok_or_else(|| {
            let message = "an option is a name and a value, as in `retries = 3`";
            Error::new(start, format!("{message}; {}", all()))
        })?;
        input.parse::<Token![=]>()?;
        given.push((name, input.parse()?));
        if !input.is_empty() {
            input.parse::<Token![,]>()?;
        }
    }
    Ok(())
}

/// What the method of this name is called with.
fn argument(name: &Ident, value: &Expr, home: &Path) -> syn::Result<TokenStream> {
    let value = bare(value);
    match name.to_string().as_str() {
        "after" => after(name, value),
        "retries" => number(name, value, 0..=u32::MAX.into()),
        "backoff" => Ok(match pause(name, value)? {
            Some(pause) => {
                let pause = written(pause, value);
                quote_spanned!(value.span()=> #home::Backoff::fixed(#pause))
            }
            None => quote!(#value),
        }),
        "timeout" | "queue_timeout" | "deadline" => match pause(name, value)? {
            Some(Duration::ZERO) => Err(wrong(name, value)),
            Some(limit) => Ok(written(limit, value)),
            None => Ok(quote!(#value)),
        },
        "weight" => number(name, value, 1..=u32::MAX.into()),
        "priority" => number(name, value, i32::MIN.into()..=i32::MAX.into()),
        "limits" => limits(name, value, home),
        "when" => when(name, value, home),
        "each" => text(name, value).map(ToTokens::into_token_stream),
        unknown => {
            let near = nearest(unknown, OPTIONS.map(|(name, _)| name));
            let near = near.map(|near| format!("; is `{near}` meant?")).unwrap_or_default();
            Err(at(name, format!("a task has no option `{unknown}`; {}{near}", all())))
        }
    }
}

fn all() -> String {
    format!("the options are {}", OPTIONS.map(|(name, _)| name).join(", "))
}

/// Says what this option takes.
fn wrong(name: &Ident, value: &Expr) -> Error {
    let takes = OPTIONS.iter().find(|(option, _)| name == option).map_or("", |(_, takes)| takes);
    at(value, format!("`{name}` takes {takes}"))
}

/// Without the invisible brackets around what comes from a variable of a `macro_rules!`.
fn bare(mut value: &Expr) -> &Expr {
    while let Expr::Group(group) = value {
        value = &group.expr;
    }
    value
}

fn literal(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Lit(ExprLit { lit, .. }) => Some(lit),
        _ => None,
    }
}

/// The literal behind a minus sign.
fn negated(value: &Expr) -> Option<&Lit> {
    match value {
        Expr::Unary(unary) if matches!(unary.op, UnOp::Neg(_)) => literal(&unary.expr),
        _ => None,
    }
}

fn text(name: &Ident, value: &Expr) -> syn::Result<LitStr> {
    match literal(bare(value)) {
        Some(Lit::Str(text)) if !text.value().is_empty() => Ok(text.clone()),
        _ => Err(wrong(name, value)),
    }
}

fn path(name: &Ident, value: &Expr) -> syn::Result<Path> {
    match bare(value) {
        Expr::Path(ExprPath { path, qself: None, .. }) => Ok(path.clone()),
        _ => Err(wrong(name, value)),
    }
}

/// A path stands for the task of that name; a text is the name.
fn after(name: &Ident, value: &Expr) -> syn::Result<TokenStream> {
    let named = |task: &Expr| match bare(task) {
        Expr::Path(path) => {
            // The compiler's complaint about a path that is no task points at its last word.
            let last = path.path.segments.last().map_or(path.span(), |last| last.ident.span());
            Ok(quote_spanned!(last=> #path::ID))
        }
        other => text(name, other).map(ToTokens::into_token_stream),
    };
    let tasks: Vec<TokenStream> = match value {
        Expr::Array(list) => list.elems.iter().map(named).collect::<syn::Result<_>>()?,
        one => vec![named(one)?],
    };
    // The type of what is in an empty list would be anybody's guess.
    Ok(if tasks.is_empty() { quote!([""; 0]) } else { quote!([#(#tasks),*]) })
}

/// Each is made what a task takes of a limit; the compiler says what cannot be.
fn limits(name: &Ident, value: &Expr, home: &Path) -> syn::Result<TokenStream> {
    let used = |limit: &Expr| match bare(limit) {
        Expr::Lit(_) => text(name, limit)
            .map(|limit| quote_spanned!(limit.span()=> #home::LimitUse::of(#limit))),
        other => Ok(quote_spanned!(other.span()=> #home::LimitUse::from(#other))),
    };
    let used: Vec<TokenStream> = match value {
        Expr::Array(list) => list.elems.iter().map(used).collect::<syn::Result<_>>()?,
        one => vec![used(one)?],
    };
    Ok(match used.is_empty() {
        true => quote!([] as [#home::LimitUse; 0]),
        false => quote!([#(#used),*]),
    })
}

fn flag(name: &Ident, value: &Expr) -> syn::Result<bool> {
    match literal(bare(value)) {
        Some(Lit::Bool(flag)) => Ok(flag.value),
        _ => Err(wrong(name, value)),
    }
}

/// A whole number in this range.
fn number(name: &Ident, value: &Expr, range: RangeInclusive<i64>) -> syn::Result<TokenStream> {
    let written: Option<i64> = match (literal(value), negated(value)) {
        (Some(Lit::Int(number)), _) => number.base10_parse().ok(),
        (_, Some(Lit::Int(number))) => number.base10_parse().ok().map(|number: i64| -number),
        (None, None) => return Ok(quote!(#value)),
        _ => None,
    };
    match written {
        Some(number) if range.contains(&number) => Ok(quote!(#value)),
        _ => Err(wrong(name, value)),
    }
}

/// A duration that is written out; `None` if it is an expression.
fn pause(name: &Ident, value: &Expr) -> syn::Result<Option<Duration>> {
    match literal(value) {
        Some(Lit::Str(text)) => match duration::parse(&text.value()) {
            Ok(duration) => Ok(Some(duration)),
            Err(error) => Err(at(text, error)),
        },
        // Without a suffix: `90s` is a number to the compiler.
        Some(Lit::Int(seconds)) if seconds.suffix().is_empty() => {
            let seconds = seconds.base10_parse().map_err(|_| wrong(name, value))?;
            Ok(Some(Duration::from_secs(seconds)))
        }
        Some(_) => Err(wrong(name, value)),
        None if negated(value).is_some() => Err(wrong(name, value)),
        None => Ok(None),
    }
}

fn written(duration: Duration, value: &Expr) -> TokenStream {
    let (seconds, nanos) = (duration.as_secs(), duration.subsec_nanos());
    quote_spanned!(value.span()=> ::core::time::Duration::new(#seconds, #nanos))
}

/// A word is a rule; anything longer is an expression.
fn when(name: &Ident, value: &Expr, home: &Path) -> syn::Result<TokenStream> {
    let word = match (value, literal(value)) {
        (_, Some(Lit::Str(text))) => text.value(),
        (_, Some(_)) => return Err(wrong(name, value)),
        (Expr::Path(path), _) if path.path.get_ident().is_some() => quote!(#path).to_string(),
        _ => return Ok(quote!(#value)),
    };
    let rule = match word.parse().map_err(|error| at(value, error))? {
        When::AllSucceeded => quote!(AllSucceeded),
        When::AllDone => quote!(AllDone),
        When::AnyFailed => quote!(AnyFailed),
        When::AnySucceeded => quote!(AnySucceeded),
    };
    Ok(quote_spanned!(value.span()=> #home::When::#rule))
}
