//! The HTTP server: read-only, on a thread of its own, with limits for unknown clients.

use crate::health::{self, Check};
use crate::impatient::Impatient;
use crate::process;
use crate::text::{self, OPEN_METRICS, PROMETHEUS};
use crate::view::{Answers, Sources, View};
use axum::Router;
use axum::extract::{Query, Request, State};
use axum::http::header::{ACCEPT, CONTENT_TYPE, HOST};
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode};
use axum::middleware::{Next, from_fn_with_state};
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use hyper::server::conn::http1;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::service::TowerToHyperService;
use std::collections::BTreeMap;
use std::net::{IpAddr, SocketAddr, TcpListener};
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

/// The settings of the server.
pub struct Settings {
    /// It listens here.
    pub listener: TcpListener,
    /// Names by which clients may address it, besides IP addresses and `localhost`. A web page can
    /// make a browser connect to any address, but then the browser sends the page's name.
    pub hosts: Vec<String>,
    /// Further pages to serve.
    pub pages: Router,
}

struct Shared {
    sources: Sources,
    answers: Answers,
    hosts: Vec<String>,
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
            probed: Mutex::default(),
        });
        let serve = async move {
            match tokio::net::TcpListener::from_std(listener) {
                Ok(listener) => serve(listener, router(shared.clone(), pages), shared).await,
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

async fn serve(listener: tokio::net::TcpListener, router: Router, shared: Arc<Shared>) {
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
        let router = router
            .clone()
            .layer(from_fn_with_state(phase.clone(), note_phase));
        let task = tokio::spawn(converse(stream, router)).abort_handle();
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

async fn note_phase(State(phase): State<Arc<AtomicU8>>, request: Request, next: Next) -> Response {
    phase.store(ASKS, Ordering::Relaxed);
    let response = next.run(request).await;
    phase.store(IDLE, Ordering::Relaxed);
    response
}

/// Serves one connection.
async fn converse(stream: impl AsyncRead + AsyncWrite + Unpin, router: Router) {
    let mut builder = http1::Builder::new();
    builder
        .timer(TokioTimer::new())
        .header_read_timeout(HEAD_LIMIT)
        .max_buf_size(HEAD_BYTES);
    let service = TowerToHyperService::new(router);
    // The reasons why connections break are the clients' business.
    let _ = builder
        .serve_connection(TokioIo::new(Impatient::new(stream, DEAF)), service)
        .await;
}

fn router(shared: Arc<Shared>, pages: Router) -> Router {
    Router::new()
        .route("/metrics", get(metrics))
        .route("/livez", get(livez))
        .route("/readyz", get(readyz))
        .route("/healthz/cluster", get(cluster))
        .fallback(|| async { (StatusCode::NOT_FOUND, PATHS) })
        .with_state(shared.clone())
        .merge(pages)
        .layer(from_fn_with_state(shared, guard))
}

/// What there is.
const PATHS: &str = "not found; there are the dashboard /, /metrics, /livez, /readyz, \
                     /healthz/cluster and /api/v1/cluster\n";

/// What a page may load, and what may be done with it: nothing that is not from here, nothing that
/// is written within the page.
const POLICY: &str = "default-src 'none'; script-src 'self'; style-src 'self'; connect-src 'self'; \
                      base-uri 'none'; form-action 'none'; frame-ancestors 'none'";

/// Refuses other methods and foreign hosts, and counts answers.
async fn guard(State(shared): State<Arc<Shared>>, request: Request, next: Next) -> Response {
    let host = request.headers().get(HOST).map(HeaderValue::to_str);
    let response = if !matches!(*request.method(), Method::GET | Method::HEAD) {
        let text = "only GET and HEAD are allowed\n";
        (
            StatusCode::METHOD_NOT_ALLOWED,
            [("allow", "GET, HEAD")],
            text,
        )
            .into_response()
    } else if !host.is_some_and(|host| host.is_ok_and(|host| is_own(host, &shared.hosts))) {
        let text = "the header Host must be an IP address, localhost, or a name of this node\n";
        (StatusCode::FORBIDDEN, text).into_response()
    } else {
        next.run(request).await
    };
    shared.answers.count(response.status().as_u16());
    let headers = [
        ("x-content-type-options", "nosniff"),
        ("x-frame-options", "DENY"),
        ("cache-control", "no-store"),
        ("content-security-policy", POLICY),
        ("referrer-policy", "no-referrer"),
    ];
    (headers, response).into_response()
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

async fn metrics(State(shared): State<Arc<Shared>>, headers: HeaderMap) -> Response {
    let accept = headers.get(ACCEPT).and_then(|it| it.to_str().ok());
    let open = accept.is_some_and(|it| it.contains("application/openmetrics-text"));
    let kind = if open { OPEN_METRICS } else { PROMETHEUS };
    let text = text::metrics(&shared.sources, &shared.answers, open);
    ([(CONTENT_TYPE, kind)], text).into_response()
}

type Asked = Query<BTreeMap<String, String>>;

async fn livez(State(shared): State<Arc<Shared>>, asked: Asked) -> Response {
    let view = View::of(&shared.sources, &shared.answers);
    answer(&health::live(&view), &asked)
}

async fn readyz(State(shared): State<Arc<Shared>>, asked: Asked) -> Response {
    let view = View::of(&shared.sources, &shared.answers);
    answer(&health::ready(&view), &asked)
}

async fn cluster(State(shared): State<Arc<Shared>>, asked: Asked) -> Response {
    let check = Check {
        name: "command",
        result: shared.probe().await,
    };
    answer(&[check], &asked)
}

fn answer(checks: &[Check], Query(asked): &Asked) -> Response {
    let excluded = asked.get("exclude").map(String::as_str).unwrap_or_default();
    let excluded: Vec<&str> = excluded.split(',').collect();
    let (passes, text) = health::verdict(checks, &excluded, asked.contains_key("verbose"));
    let code = match passes {
        true => StatusCode::OK,
        false => StatusCode::SERVICE_UNAVAILABLE,
    };
    (code, text).into_response()
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
