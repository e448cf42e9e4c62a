//! Inputs are data: by what becomes of lines, and by what real shells do with them.

use super::*;
use crate::placeholder::PLACEHOLDERS;
use proptest::prelude::*;
use std::ffi::{OsStr, OsString};
use std::os::unix::ffi::OsStrExt as _;
use std::process::{Command, Output, Stdio};
use tempfile::TempDir;

fn parse(line: &str) -> Result<ShellLine, DoubtfulPlaceholder> {
    ShellLine::parse(line.as_bytes(), PLACEHOLDERS)
}

fn references(line: &str) -> String {
    String::from_utf8(parse(line).unwrap().with_references(7, 1)).unwrap()
}

fn doubt(line: &str) -> (&str, Doubt) {
    let error = parse(line).unwrap_err();
    (&line[error.at], error.doubt)
}

#[test]
fn placeholder_becomes_a_quoted_reference_wherever_it_stands() {
    assert_eq!(references("x {} {/}"), r#"x "${TIDEGATE_INPUT}" "${TIDEGATE_INPUT_BASENAME}""#);
    assert_eq!(references(r#"x "a {} b""#), r#"x "a ${TIDEGATE_INPUT} b""#);
    assert_eq!(references("x 'a {} b'"), r#"x 'a '"${TIDEGATE_INPUT}"' b'"#);
    assert_eq!(references(r#"\"{} \'{}"#), r#"\""${TIDEGATE_INPUT}" \'"${TIDEGATE_INPUT}""#);
    assert_eq!(references("{#} '{#}' <<E\n{#}"), "7 '7' <<E\n7");
    assert_eq!(references("it is \\{}"), "it is \\{}");
    assert_eq!(references("$$ $# ${x%.y}{}"), r#"$$ $# ${x%.y}"${TIDEGATE_INPUT}""#);
}

#[test]
fn several_inputs_stand_side_by_side() {
    let line = parse("x{}y '{}' \"{}\"").unwrap().with_references(1, 2);
    let right = concat!(
        r#"x"${TIDEGATE_INPUT_1}" "${TIDEGATE_INPUT_2}"y "#,
        r#"''"${TIDEGATE_INPUT_1}"' '"${TIDEGATE_INPUT_2}"'' "#,
        r#""${TIDEGATE_INPUT_1} ${TIDEGATE_INPUT_2}""#,
    );
    assert_eq!(String::from_utf8(line).unwrap(), right);
}

#[test]
fn line_in_which_quotes_are_not_certain_is_refused() {
    for (line, right) in [
        ("a # it's {}", Doubt::Comment),
        ("a;# {}", Doubt::Comment),
        ("cat <<E\n{}\nE", Doubt::HereDocument),
        ("cat <<'E' {}\n", Doubt::HereDocument),
        ("a <\\\n<E {}", Doubt::HereDocument),
        ("a $'\\'' {}", Doubt::DollarQuotes),
        (r#"a $"b" {}"#, Doubt::DollarQuotes),
        (r#"a "$(cat '{}')""#, Doubt::Substitution),
        ("a $(cat {})", Doubt::Substitution),
        ("a `cat {}`", Doubt::Substitution),
        ("a `echo \\`b\\`` {}", Doubt::Substitution),
        ("a $(case x in a) echo 'b;; esac) {}", Doubt::Substitution),
        ("a $(echo \"$(b)\") {}", Doubt::Substitution),
        ("a ${x:-{}}", Doubt::Expansion),
        ("a \"${x:-'}\" {}", Doubt::Expansion),
        ("a $\\\n{x} {}", Doubt::Expansion),
        ("a ${}", Doubt::Expansion),
        ("a $((1 + {}))", Doubt::Arithmetic),
        ("(( {} ))", Doubt::Arithmetic),
        ("a $[ {} ]", Doubt::Arithmetic),
        ("[[ {} -eq 1 ]]", Doubt::Brackets),
        ("ls *(e:{}:)", Doubt::Parenthesis),
        ("a[{}]=1", Doubt::Subscript),
        ("a \"$b[{}]\"", Doubt::Subscript),
        ("eval echo {}", Doubt::Evaluated("eval")),
        ("x=1 2>y command eval \"echo {}\"", Doubt::Evaluated("eval")),
        ("f() { trap 'rm {}' EXIT; }", Doubt::Evaluated("trap")),
        ("$x eval {}", Doubt::Evaluated("eval")),
        ("\"$x\"eval {}", Doubt::Evaluated("eval")),
        ("sh -c 'cat {}'", Doubt::Script),
        ("${x}sh -c {}", Doubt::Script),
        ("sudo /bin/bash -e -uc -- \"cat {}\"", Doubt::Script),
    ] {
        assert_eq!(doubt(line), ("{}", right), "{line}");
    }
    assert_eq!(doubt("a ${#}").1, Doubt::Expansion);
}

#[test]
fn what_is_certain_is_not_refused() {
    for line in [
        "# it's a comment\nrm {}",
        "a#'b' {}",
        "case {} in a) b {};; *) c;; esac",
        "x=$(basename \"$y\") z=`date`; a \"$(date) {}\"",
        "f() { rm {}; }; f; (cd a && b {}) > {}",
        "cat {} <<E\nit's\nE",
        "cat <<< {}",
        "read -r x < {}; echo {}",
        "sh -c 'cat \"$1\"' sh {}",
        "for x in {} b; do echo \"$x\" $((1 + 2)); done",
        "a=({} b); [ {} = \"${a#x}\" ] || test -e {}",
        "curl http://127.0.0.1:$(cat work/port)/{}.csv -o work/{}.csv",
    ] {
        assert!(parse(line).is_ok_and(|line| line.has_placeholder()), "{line}");
    }
}

#[test]
fn input_is_put_behind_a_line_that_ends_with_a_command() {
    let append = |line: &str| ShellLine::parse_or_append(line.as_bytes(), PLACEHOLDERS);
    let line = append("x 'y'").unwrap().with_references(1, 1);
    assert_eq!(line, br#"x 'y' "${TIDEGATE_INPUT}""#);
    assert!(append("$x -y").is_ok());
    assert_eq!(append("x {#}").unwrap().with_references(1, 1), b"x 1");
    for line in ["x;", "x\n", "x # y", "(x)", "x 'y", "x \\", "x <<E", "eval", "sh -c", "x=1", " "]
    {
        assert_eq!(append(line), Err(LineError::NoPlace), "{line}");
    }
}

#[test]
fn shell_is_known_by_its_name_and_its_last_option() {
    let known =
        |words: &[&str]| is_known_shell(&words.iter().map(ToString::to_string).collect::<Vec<_>>());
    for words in [&["sh", "-ec"][..], &["/bin/bash", "-o", "pipefail", "-c"], &["zsh", "-fc"]] {
        assert!(known(words), "{words:?}");
    }
    for words in [
        &["fish", "-c"][..],
        &["python3", "-c"],
        &["sh"],
        &["sh", "-c", "exec $1"],
        &["env", "sh", "-c"],
        &[],
    ] {
        assert!(!known(words), "{words:?}");
    }
}

/// The shells of this machine.
fn shells() -> Vec<&'static str> {
    let is_there = |shell: &&str| Command::new(shell).arg("-c").arg(":").output().is_ok();
    SHELLS.into_iter().filter(is_there).collect()
}

/// What a shell makes of the line, in a directory of its own.
fn run(shell: &str, line: &ShellLine, input: &[u8]) -> (Output, TempDir) {
    let directory = tempfile::tempdir().unwrap();
    let mut command = Command::new(shell);
    command.arg("-ec").arg(OsStr::from_bytes(&line.with_references(7, 1)));
    command.args([OsStr::new("sh"), OsStr::from_bytes(input)]);
    for (_, placeholder) in PLACEHOLDERS {
        let value = placeholder.value(input, 7);
        command.env(placeholder.variable(), OsStr::from_bytes(&value));
    }
    command.current_dir(directory.path()).stdin(Stdio::null());
    (command.output().unwrap(), directory)
}

const HOSTILE: [&[u8]; 20] = [
    b"; touch pwned",
    b"$(touch pwned)",
    b"`touch pwned`",
    b"' ; touch pwned; '",
    b"\" ; touch pwned; \"",
    b"'\"'; touch pwned #",
    b"\ntouch pwned\n",
    b"x # \n touch pwned",
    b"\\",
    b"\\'; touch pwned; \\\"",
    b"a[$(touch pwned)]",
    b"E\ntouch pwned\nE\n",
    b"| touch pwned",
    b"& touch pwned &",
    b"} ; touch pwned; {",
    b") touch pwned (",
    b"${x:-$(touch pwned)}",
    b"-n",
    b"  * ? ~ $HOME !!  ",
    b"\xff\xfe'\x01\x7f\"",
];

#[test]
fn input_arrives_byte_for_byte_in_every_shell() {
    for shell in shells() {
        for text in [
            "printf '%s\\n' {}",
            "printf '%s\\n' \"{}\"",
            "printf '%s\\n' '{}'",
            "x={}; set -- b; f() { printf '%s\\n' {}; }; f c",
            "# don't\nprintf '%s\\n' {} # \"",
            "printf \"$(echo '%s')\\n\" {}",
            "printf '%s\\n' \"$1\" # {#}",
        ] {
            let line = parse(text).unwrap();
            for input in HOSTILE {
                let (output, directory) = run(shell, &line, input);
                let said = String::from_utf8_lossy(&output.stderr);
                let right = [input, b"\n"].concat();
                assert_eq!(output.stdout, right, "{shell} {text:?} {input:?} {said}");
                assert!(!directory.path().join("pwned").exists(), "{shell} {text:?} {input:?}");
            }
        }
    }
}

#[rustfmt::skip]
const FRAGMENTS: &[&str] = &[
    "{}", "{}", "{}", "{/}", "{.}", "{//}", "{/.}", "{#}", "echo ", "printf %s ", "a", "x=", " ",
    " ", "\n", "; ", " | ", " && ", " & ", "'", "'", "\"", "\"", "\\", "#", " # it's ", " #",
    " <<E\n", "\nE\n", " <<-'E'\n", " <<< ", " < ", " > ", "$'", "$\"", "`", "$(", ")", "(", "((",
    "))", "${x", "${x}", "${x:-", "}", "{ ", "$((", "$((1 + 2))", "[[ ", " ]]", "[ ", " ]", "a[",
    "]=1", " -eq 1", "case a in a) ", ";; esac", "if :; then ", "; fi", "eval ", " eval ",
    "sh -c ", "bash -c ", "-c ", "$#", "${#}", "$", "$x", "$x[", "set -- b; ", "f() { ",
    "; }; f c", "~", "*", "!", "\\\n", "é", "\u{a0}", "\\'", "\\\"", "let ", "trap ", "alias x=",
    "$(echo \"$x\")", "`echo a`", "=(", "a=(",
];

fn lines() -> impl Strategy<Value = String> {
    let fragments = prop::collection::vec(prop::sample::select(FRAGMENTS), 1..10);
    fragments.prop_map(|fragments| fragments.concat())
}

proptest! {
    // Most lines are refused, and cost nothing.
    #![proptest_config(ProptestConfig { cases: 600, failure_persistence: None, ..ProptestConfig::default() })]

    #[test]
    fn line_is_refused_or_runs_no_byte_of_an_input(
        text in lines(),
        input in prop::sample::select(&HOSTILE[..]),
    ) {
        // One that reads what another writes is told to run it.
        prop_assume!(text.matches("sh -c").count() < 2);
        if let Ok(line) = parse(&text)
            && line.placeholders().any(|placeholder| placeholder != Placeholder::Number)
        {
            for shell in shells_once() {
                let (_, directory) = run(shell, &line, input);
                let made: Vec<OsString> = std::fs::read_dir(directory.path())
                    .unwrap()
                    .map(|entry| entry.unwrap().file_name())
                    .collect();
                prop_assert!(!made.contains(&"pwned".into()), "{shell} {text:?} {input:?}");
            }
        }
    }
}

/// Looked for once.
fn shells_once() -> &'static [&'static str] {
    static FOUND: std::sync::OnceLock<Vec<&'static str>> = std::sync::OnceLock::new();
    FOUND.get_or_init(shells)
}
