//! The URL of a store: the server, and the way it is used.

use crate::open_error::PostgresOpenError;
use crate::tls::TlsMode;
use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;
use tidegate_core::duration;
use tokio_postgres::Config;
use tokio_postgres::config::{Host, SslMode};

/// The schema of a store whose URL names none.
const DEFAULT_SCHEMA: &str = "tidegate";

/// Connections for requests and views. A request takes a millisecond or so of one, and the server works
/// on few at once.
const DEFAULT_POOL: usize = 8;

/// More would exhaust the connections of any server.
const POOL_MAX: usize = 1_000;

const DEFAULT_POOL_TIMEOUT: Duration = Duration::from_secs(30);

/// A transaction that waits for longer is tried again: a lock is held for milliseconds.
const DEFAULT_LOCK_TIMEOUT: Duration = Duration::from_secs(5);

/// Time for the workers to connect again to a server that was started anew.
const DEFAULT_RESTART_GRACE: Duration = Duration::from_secs(10);

const DEFAULT_CONNECT_TIMEOUT: Duration = Duration::from_secs(10);

/// A connection without traffic is tested after this long: a server that lost its power says nothing.
const KEEPALIVE_IDLE: Duration = Duration::from_secs(15);

/// The directory with the sockets of Debian's servers.
const SOCKET_DIRECTORY: &str = "/var/run/postgresql";

/// The server of a store, and the way it is used.
///
/// It is parsed from a URL `postgres://USER:PASSWORD@HOST:PORT/DATABASE?PARAMETER=VALUE&…`. Several hosts
/// are separated by commas; the path of a directory with a Unix socket is percent-encoded. Without a
/// password in the URL, that of the variable `PGPASSWORD` is used. Besides the parameters of libpq that
/// `tokio-postgres` knows, there are:
///
/// - `schema`: the schema with the tables, created when it is missing; `tidegate` unless set.
/// - `pool`: connections for requests and views, 1 to 1,000; 8 unless set. A process has up to four
///   more, and one for each worker.
/// - `pool_timeout`: the time for which a request waits for one of them; `30s` unless set.
/// - `lock_timeout`: the time after which a transaction that waits for a lock is tried again; `5s` unless set.
/// - `restart_grace`: the time after a start of the server in which no worker counts as dead; `10s` unless set.
/// - `notifications`: `off` to send none to other workers; they find new work when they poll.
/// - `claim_orders`: `off` to load the tasks that are claimed before it is decided which of them are: one
///   trip more for each claim, on the same terms.
/// - `sslmode`: `disable`, `prefer` (the default), `require`, `verify-ca`, `verify-full`, as in libpq: only
///   the last two check the certificate of the server.
/// - `sslrootcert`: a file with the certificates that the server's one is checked by; those of the
///   operating system unless set.
///
/// # Examples
/// ```
/// use tidegate_postgres::PostgresConfig;
///
/// let config = PostgresConfig::parse_url("postgres://ada:secret@db.example/jobs?pool=4&lock_timeout=2s")?;
/// assert_eq!(config.server_name(), "postgres://ada@db.example:5432/jobs");
/// # Ok::<_, tidegate_postgres::PostgresOpenError>(())
/// ```
#[derive(Debug, Clone)]
pub struct PostgresConfig {
    pub(crate) connection: Config,
    pub(crate) tls_mode: TlsMode,
    pub(crate) root_certificates: Option<PathBuf>,
    pub(crate) schema: String,
    pub(crate) pool_size: usize,
    pub(crate) pool_timeout: Duration,
    pub(crate) lock_timeout: Duration,
    pub(crate) restart_grace: Duration,
    pub(crate) sends_notifications: bool,
    pub(crate) orders_claims: bool,
}

impl PostgresConfig {
    /// Parses a URL.
    ///
    /// # Errors
    /// A part of it cannot be understood; the error names that part, and never the password.
    pub fn parse_url(url: &str) -> Result<Self, PostgresOpenError> {
        let is_ours = url.starts_with("postgres://") || url.starts_with("postgresql://");
        if !is_ours {
            return Err(invalid_url("it begins with postgres:// or postgresql://"));
        }
        let (base, parameters) = split_parameters(url);
        let mut config = PostgresConfig {
            connection: Config::new(),
            tls_mode: TlsMode::Prefer,
            root_certificates: None,
            schema: DEFAULT_SCHEMA.to_owned(),
            pool_size: DEFAULT_POOL,
            pool_timeout: DEFAULT_POOL_TIMEOUT,
            lock_timeout: DEFAULT_LOCK_TIMEOUT,
            restart_grace: DEFAULT_RESTART_GRACE,
            sends_notifications: true,
            orders_claims: true,
        };
        let mut rest = base.to_owned();
        let mut separator = '?';
        for parameter in parameters.split('&').filter(|parameter| !parameter.is_empty()) {
            let (name, value) = parameter.split_once('=').unwrap_or((parameter, ""));
            if !config.set_parameter(name, &decode_percent(value)?)? {
                let _ = write!(rest, "{separator}{parameter}");
                separator = '&';
            }
        }
        let parsed = rest.parse::<Config>();
        // Its cause names the part, but not its value.
        config.connection = parsed.map_err(|error| {
            let cause = std::error::Error::source(&error).map(ToString::to_string);
            invalid_url(cause.unwrap_or_else(|| error.to_string()))
        })?;
        config.complete_connection();
        Ok(config)
    }

    /// The URL of the server without its password and parameters, for messages.
    pub fn server_name(&self) -> String {
        let mut name = "postgres://".to_owned();
        if let Some(user) = self.connection.get_user() {
            let _ = write!(name, "{user}@");
        }
        let ports = self.connection.get_ports();
        for (index, host) in self.connection.get_hosts().iter().enumerate() {
            let separator = if index == 0 { "" } else { "," };
            let _ = match host {
                Host::Tcp(host) => write!(name, "{separator}{host}"),
                #[cfg(unix)]
                Host::Unix(path) => write!(name, "{separator}{}", path.display()),
            };
            if let Some(port) = ports.get(index).or(ports.first()) {
                let _ = write!(name, ":{port}");
            }
        }
        if let Some(database) = self.connection.get_dbname() {
            let _ = write!(name, "/{database}");
        }
        if self.schema != DEFAULT_SCHEMA {
            let _ = write!(name, "?schema={}", self.schema);
        }
        name
    }

    /// Sets a parameter of a store; `false` if it is one of libpq.
    fn set_parameter(&mut self, name: &str, value: &str) -> Result<bool, PostgresOpenError> {
        let read_duration =
            || duration::parse(value).map_err(|error| invalid_url(format!("{name}: {error}")));
        match name {
            "schema" => self.schema = read_schema(value)?,
            "pool" => {
                let size = value.parse().ok().filter(|size| (1..=POOL_MAX).contains(size));
                self.pool_size = size.ok_or_else(|| {
                    invalid_url(format!("pool: \"{value}\" is not a number from 1 to {POOL_MAX}"))
                })?;
            }
            "pool_timeout" => self.pool_timeout = read_duration()?,
            "lock_timeout" => self.lock_timeout = read_duration()?,
            "restart_grace" => self.restart_grace = read_duration()?,
            "notifications" => {
                self.sends_notifications = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(invalid_url("notifications: expected on or off")),
                }
            }
            "claim_orders" => {
                self.orders_claims = match value {
                    "on" => true,
                    "off" => false,
                    _ => return Err(invalid_url("claim_orders: expected on or off")),
                }
            }
            "sslmode" => {
                self.tls_mode = TlsMode::find_named(value).ok_or_else(|| {
                    let known = "disable, prefer, require, verify-ca or verify-full";
                    invalid_url(format!("sslmode: \"{value}\" is none of {known}"))
                })?;
            }
            "sslrootcert" => {
                // libpq's word for the certificates of the operating system.
                self.root_certificates = (value != "system").then(|| PathBuf::from(value));
            }
            _ => return Ok(false),
        }
        Ok(true)
    }

    /// Sets everything that the URL leaves open.
    fn complete_connection(&mut self) {
        let connection = &mut self.connection;
        if connection.get_hosts().is_empty() && connection.get_hostaddrs().is_empty() {
            let is_debian = Path::new(SOCKET_DIRECTORY).is_dir();
            connection.host(if is_debian { SOCKET_DIRECTORY } else { "localhost" });
        }
        if connection.get_password().is_none()
            && let Ok(password) = std::env::var("PGPASSWORD")
        {
            connection.password(password);
        }
        if connection.get_connect_timeout().is_none() {
            connection.connect_timeout(DEFAULT_CONNECT_TIMEOUT);
        }
        // The driver sets two hours when the URL does not say.
        if connection.get_keepalives_idle() == Duration::from_secs(7_200) {
            connection.keepalives_idle(KEEPALIVE_IDLE);
        }
        if connection.get_application_name().is_none() {
            connection.application_name("tidegate");
        }
        let is_local = |host: &Host| !matches!(host, Host::Tcp(_));
        let is_local =
            connection.get_hosts().iter().all(is_local) && connection.get_hostaddrs().is_empty();
        // A server offers no TLS on a socket of its own machine: the question would cost a trip.
        connection.ssl_mode(match self.tls_mode {
            TlsMode::Disable => SslMode::Disable,
            TlsMode::Prefer if is_local => SslMode::Disable,
            TlsMode::Prefer => SslMode::Prefer,
            TlsMode::Require | TlsMode::VerifyCa | TlsMode::VerifyFull => SslMode::Require,
        });
    }
}

/// Splits a URL at the beginning of its parameters, as the driver does: a question mark before the `@`
/// belongs to the password.
fn split_parameters(url: &str) -> (&str, &str) {
    let host = url.find('@').map_or(0, |at| at + 1);
    match url[host..].find('?') {
        Some(mark) => (&url[..host + mark], &url[host + mark + 1..]),
        None => (url, ""),
    }
}

fn decode_percent(text: &str) -> Result<String, PostgresOpenError> {
    let invalid = || invalid_url(format!("\"{text}\" has a percent sign without a byte behind it"));
    let mut bytes = Vec::with_capacity(text.len());
    let mut rest = text.as_bytes();
    while let [first, tail @ ..] = rest {
        rest = tail;
        bytes.push(match first {
            b'%' => {
                let (digits, tail) = tail.split_at_checked(2).ok_or_else(invalid)?;
                rest = tail;
                let digits = str::from_utf8(digits).map_err(|_| invalid())?;
                u8::from_str_radix(digits, 16).map_err(|_| invalid())?
            }
            byte => *byte,
        });
    }
    String::from_utf8(bytes).map_err(|_| invalid_url(format!("\"{text}\" is not UTF-8")))
}

fn read_schema(name: &str) -> Result<String, PostgresOpenError> {
    let is_allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || c == '_';
    let is_valid = (1..=63).contains(&name.len())
        && name.chars().all(is_allowed)
        && !name.starts_with(|c: char| c.is_ascii_digit())
        && !name.starts_with("pg_");
    if is_valid {
        return Ok(name.to_owned());
    }
    Err(invalid_url(format!(
        "schema: \"{name}\" is not 1 to 63 lower-case letters, digits and underscores that begin \
         neither with a digit nor with pg_"
    )))
}

fn invalid_url(reason: impl Into<String>) -> PostgresOpenError {
    PostgresOpenError::InvalidUrl { reason: reason.into() }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(url: &str) -> PostgresConfig {
        PostgresConfig::parse_url(url).expect(url)
    }

    fn refusal_of(url: &str) -> String {
        PostgresConfig::parse_url(url).expect_err(url).to_string()
    }

    #[test]
    fn parameters_of_the_store_are_kept_from_the_driver() {
        let config = parse(
            "postgres://ada:s%3Fcret@one:5433,two:5434/jobs?schema=night&pool=3&lock_timeout=250ms&\
             target_session_attrs=read-write&application_name=report%20er&pool_timeout=1s",
        );
        assert_eq!((config.schema.as_str(), config.pool_size), ("night", 3));
        assert_eq!(config.lock_timeout, Duration::from_millis(250));
        assert_eq!(config.pool_timeout, Duration::from_secs(1));
        let connection = &config.connection;
        assert_eq!(connection.get_password(), Some(b"s?cret".as_slice()));
        assert_eq!(connection.get_ports(), [5433, 5434]);
        assert_eq!(connection.get_application_name(), Some("report er"));
        let attributes = tokio_postgres::config::TargetSessionAttrs::ReadWrite;
        assert_eq!(connection.get_target_session_attrs(), attributes);
        assert_eq!(config.server_name(), "postgres://ada@one:5433,two:5434/jobs?schema=night");
    }

    #[test]
    fn socket_of_this_machine_is_used_without_tls() {
        let config = parse("postgres://ada@%2Ftmp%2Fsockets:5433/jobs");
        assert_eq!(config.connection.get_ssl_mode(), SslMode::Disable);
        assert_eq!(config.server_name(), "postgres://ada@/tmp/sockets:5433/jobs");
        let config = parse("postgres://ada@db.example/jobs");
        assert_eq!(config.connection.get_ssl_mode(), SslMode::Prefer);
        let config = parse("postgres://ada@db.example/jobs?sslmode=verify-full");
        assert_eq!(config.connection.get_ssl_mode(), SslMode::Require);
    }

    #[test]
    fn invalid_url_is_refused_without_its_password() {
        let cases = [
            ("mysql://ada:secret@one/jobs", "begins with postgres://"),
            ("postgres://ada:secret@one/jobs?pool=0", "\"0\" is not a number from 1 to 1000"),
            ("postgres://ada:secret@one/jobs?pool=many", "\"many\" is not a number"),
            ("postgres://ada:secret@one/jobs?schema=Night", "\"Night\" is not 1 to 63 lower-case"),
            ("postgres://ada:secret@one/jobs?schema=pg_mine", "\"pg_mine\" is not"),
            ("postgres://ada:secret@one/jobs?lock_timeout=soon", "\"soon\" is not a duration"),
            ("postgres://ada:secret@one/jobs?sslmode=perhaps", "none of disable, prefer"),
            ("postgres://ada:secret@one/jobs?notifications=maybe", "expected on or off"),
            (
                "postgres://ada:secret@one/jobs?claim_orders=maybe",
                "claim_orders: expected on or off",
            ),
            ("postgres://ada:secret@one/jobs?colour=red", "colour"),
            ("postgres://ada:secret@one:port/jobs", "port"),
        ];
        for (url, part) in cases {
            let refusal = refusal_of(url);
            assert!(refusal.contains(part), "{url}: {refusal}");
            assert!(!refusal.contains("secret"), "{refusal}");
        }
    }
}
