//! The HTTP server: read-only, on a thread of its own, with limits for unknown clients.

use crate::health::{self, Check};
use crate::impatient::Impatient;
use crate::process;
use crate::text::{self, OPEN_METRICS, PROMETHEUS};
use crate::view::{Answers, Sources, View};
use bytes::Bytes;
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
use hyper::body::Incoming;
use hyper::header::{
    ACCEPT, ALLOW, CACHE_CONTROL, CONTENT_SECURITY_POLICY, CONTENT_TYPE, HOST, HeaderMap,
    HeaderName, HeaderValue, REFERRER_POLICY, X_CONTENT_TYPE_OPTIONS, X_FRAME_OPTIONS,
};
use hyper::server::conn::http1;
use hyper::service::service_fn;
use hyper::{Method, Request, StatusCode};
use hyper_util::rt::{TokioIo, TokioTimer};
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::net::{IpAddr, SocketAddr, TcpListener};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU8, Ordering};
use std::time::{Duration, Instant};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::sync::Mutex;
use tokio::task::AbortHandle;

/// The largest head of a request. A larger one gets 431.
const HEAD_BYTES: usize = 8 << 10;

/// At most this many connections. A further one takes the place of the oldest that waits for its
/// client; if there is none, it is closed at once.
const CONNECTIONS: usize = 100;

/// How long a client may take to send the head of a request, and a connection may be idle.
const HEAD_LIMIT: Duration = Duration::from_secs(10);

/// How long a command may take to pass the log, for `/healthz/cluster`.
const PROBE_LIMIT: Duration = Duration::from_secs(1);

/// Requests within this time get the same answer, so that clients cannot fill the log.
const PROBED_EVERY: Duration = Duration::from_secs(1);

/// A connection is closed if its client has read nothing for this long.
const DEAF: Duration = Duration::from_secs(15);

/// After a failure to accept, for example without free file descriptors.
const ACCEPT_PAUSE: Duration = Duration::from_millis(100);

/// What a client gets.
pub type Response = hyper::Response<BoxBody<Bytes, Infallible>>;

/// What follows the `?` of a request.
pub type Query = BTreeMap<String, String>;

/// Answers a request for a path, or does not know it.
pub type Pages = Box<
    dyn Fn(&str, Query) -> Option<Pin<Box<dyn Future<Output = Response> + Send>>> + Send + Sync,
>;

/// The settings of the server.
pub struct Settings {
    /// It listens here.
    pub listener: TcpListener,
    /// Names by which clients may address it, besides IP addresses and `localhost`. A web page can
    /// make a browser connect to any address, but then the browser sends the page's name.
    pub hosts: Vec<String>,
    /// Further pages to serve.
    pub pages: Pages,
}

struct Shared {
    sources: Sources,
    answers: Answers,
    hosts: Vec<String>,
    pages: Pages,
    /// The last probe of the log, and when it ended.
    probed: Mutex<Option<(Instant, Result<(), String>)>>,
}

impl Shared {
    /// Whether a command passes the log now.
    async fn probe(&self) -> Result<(), String> {
        let mut last = self.probed.lock().await;
        match &*last {
            Some((at, result)) if at.elapsed() < PROBED_EVERY => result.clone(),
            _ => {
                let result = self.sources.status.probe(PROBE_LIMIT).await;
                *last = Some((Instant::now(), result.clone()));
                result
            }
        }
    }
}

/// A running server. It runs until the process ends.
pub struct Server {
    address: SocketAddr,
}

impl Server {
    /// Starts the server.
    ///
    /// # Errors
    /// If the socket or the thread cannot be set up.
    pub fn start(settings: Settings, sources: Sources) -> std::io::Result<Server> {
        process::started();
        let Settings {
            listener,
            hosts,
            pages,
        } = settings;
        let address = listener.local_addr()?;
        listener.set_nonblocking(true)?;
        let runtime = tokio::runtime::Builder::new_current_thread()
            .enable_all()
            .build()?;
        let shared = Arc::new(Shared {
            sources,
            answers: Answers::default(),
            hosts,
            pages,
            probed: Mutex::default(),
        });
        let serve = async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => serve(listener, shared).await,
                Err(error) => tracing::error!(id = "E0801", "cannot serve metrics: {error}"),
            }
        };
        std::thread::Builder::new()
            .name("http".into())
            .spawn(move || runtime.block_on(serve))?;
        Ok(Server { address })
    }

    /// Where it listens.
    pub fn address(&self) -> SocketAddr {
        self.address
    }
}

async fn serve(listener: tokio::net::TcpListener, shared: Arc<Shared>) {
    let mut places = Vec::new();
    loop {
        let Ok((stream, _)) = listener.accept().await else {
            tokio::time::sleep(ACCEPT_PAUSE).await;
            continue;
        };
        if !has_room(&mut places, &shared.answers) {
            continue;
        }
        let phase = Arc::new(AtomicU8::new(NEW));
        let task = converse(stream, phase.clone(), shared.clone());
        let task = tokio::spawn(task).abort_handle();
        places.push(Place { phase, task });
    }
}

/// A connection, in the order in which they were accepted.
struct Place {
    phase: Arc<AtomicU8>,
    task: AbortHandle,
}

/// It has sent no whole head of a request yet.
const NEW: u8 = 0;
/// A request is being answered.
const ASKS: u8 = 1;
/// Its last request was answered.
const IDLE: u8 = 2;

/// Makes room for one more connection, if it can: unfinished requests must keep no probe out.
fn has_room(places: &mut Vec<Place>, answers: &Answers) -> bool {
    places.retain(|place| !place.task.is_finished());
    if places.len() < CONNECTIONS {
        return true;
    }
    answers.refused.fetch_add(1, Ordering::Relaxed);
    let oldest = |phase| {
        let is_in = |place: &Place| place.phase.load(Ordering::Relaxed) == phase;
        places.iter().position(is_in)
    };
    let Some(at) = oldest(NEW).or_else(|| oldest(IDLE)) else {
        return false;
    };
    places.remove(at).task.abort();
    true
}

/// Serves one connection.
async fn converse(
    stream: impl AsyncRead + AsyncWrite + Unpin,
    phase: Arc<AtomicU8>,
    shared: Arc<Shared>,
) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_BYTES);
    let service = service_fn(async |request| {
        phase.store(ASKS, Ordering::Relaxed);
        let response = guard(&shared, &request).await;
        phase.store(IDLE, Ordering::Relaxed);
        Ok::<_, Infallible>(response)
    });
    // The reasons why connections break are the clients' business.
    let _ = builder
        .serve_connection(TokioIo::new(Impatient::new(stream, DEAF)), service)
        .await;
}

/// The answer to a request that is not refused.
async fn route(shared: &Shared, request: &Request<Incoming>) -> Response {
    let query = request.uri().query().unwrap_or_default();
    let asked: Query = form_urlencoded::parse(query.as_bytes())
        .into_owned()
        .collect();
    let view = || View::of(&shared.sources, &shared.answers);
    match request.uri().path() {
        "/metrics" => metrics(shared, request.headers()),
        "/livez" => verdict(&health::live(&view()), &asked),
        "/readyz" => verdict(&health::ready(&view()), &asked),
        "/healthz/cluster" => {
            let check = Check {
                name: "command",
                result: shared.probe().await,
            };
            verdict(&[check], &asked)
        }
        path => match (shared.pages)(path, asked) {
            Some(page) => page.await,
            None => answer(StatusCode::NOT_FOUND, TEXT, PATHS),
        },
    }
}

const TEXT: &str = "text/plain; charset=utf-8";

/// An answer with this type and body.
fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Response {
    let mut response = Response::new(Full::new(body.into()).boxed());
    *response.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    response.headers_mut().insert(CONTENT_TYPE, kind);
    response
}

/// What there is.
const PATHS: &str = "not found; there are the dashboard /, /metrics, /livez, /readyz, \
                     /healthz/cluster and /api/v1/cluster\n";

/// What a page may load, and what may be done with it: nothing that is not from here, nothing that
/// is written within the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// With every answer.
const HEADERS: [(HeaderName, &str); 5] = [
    (X_CONTENT_TYPE_OPTIONS, "nosniff"),
    (X_FRAME_OPTIONS, "DENY"),
    (CACHE_CONTROL, "no-store"),
    (CONTENT_SECURITY_POLICY, POLICY),
    (REFERRER_POLICY, "no-referrer"),
];

/// Refuses other methods and foreign hosts, and counts answers.
async fn guard(shared: &Shared, request: &Request<Incoming>) -> Response {
    let host = request.headers().get(HOST).map(HeaderValue::to_str);
    let mut response = if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let text = "only GET and HEAD are allowed\n";
        let mut response = answer(StatusCode::METHOD_NOT_ALLOWED, TEXT, text);
        let allowed = HeaderValue::from_static("GET, HEAD");
        response.headers_mut().insert(ALLOW, allowed);
        response
    } else if !host.is_some_and(|host| host.is_ok_and(|host| is_own(host, &shared.hosts))) {
        let text = "the header Host must be an IP address, localhost, or a name of this node\n";
        answer(StatusCode::FORBIDDEN, TEXT, text)
    } else {
        route(shared, request).await
    };
    shared.answers.count(response.status().as_u16());
    for (name, value) in HEADERS {
        let value = HeaderValue::from_static(value);
        response.headers_mut().insert(name, value);
    }
    response
}

/// Whether a client that sends this `Host` means this server and not a name of a web page.
fn is_own(host: &str, names: &[String]) -> bool {
    if host.parse::<SocketAddr>().is_ok() {
        return true;
    }
    let name = match host.rsplit_once(':') {
        Some((name, port)) if port.parse::<u16>().is_ok() => name,
        _ => host,
    };
    let bare = name.trim_start_matches('[').trim_end_matches(']');
    bare.parse::<IpAddr>().is_ok()
        || name.eq_ignore_ascii_case("localhost")
        || names.iter().any(|known| name.eq_ignore_ascii_case(known))
}

fn metrics(shared: &Shared, headers: &HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
    let open = accept.is_some_and(|it| it.contains("application/openmetrics-text"));
    let kind = if open { OPEN_METRICS } else { PROMETHEUS };
    let text = text::metrics(&shared.sources, &shared.answers, open);
    answer(StatusCode::OK, kind, text)
}

fn verdict(checks: &[Check], asked: &Query) -> Response {
    let excluded = asked.get("exclude").map(String::as_str).unwrap_or_default();
    let excluded: Vec<&str> = excluded.split(',').collect();
    let (passes, text) = health::verdict(checks, &excluded, asked.contains_key("verbose"));
    let code = match passes {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    answer(code, TEXT, text)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_name_of_a_web_page_is_refused() {
        let names = ["db1.example".to_owned()];
        for own in [
            "127.0.0.1:9000",
            "127.0.0.1",
            "[::1]:9000",
            "[::1]",
            "localhost",
            "LOCALHOST:80",
            "db1.example:9000",
            "DB1.example",
        ] {
            assert!(is_own(own, &names), "{own}");
        }
        for foreign in [
            "",
            "evil.example",
            "evil.example:9000",
            "127.0.0.1.evil.example",
            "localhost.evil.example:80",
            "db1.example.evil",
            "127.0.0.1:9000:80",
        ] {
            assert!(!is_own(foreign, &names), "{foreign}");
        }
    }
}
