//! The page and its interfaces.

use crate::memory::Of;
use crate::watch::{Dashboard, Seen, Viewer};
use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::{Query, State};
use axum::http::StatusCode;
use axum::http::header::CONTENT_TYPE;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use bytes::Bytes;
use std::collections::BTreeMap;
use std::convert::Infallible;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;
use tokio::sync::{OwnedSemaphorePermit, mpsc, watch};

/// The most pages that may be open at a node. Each takes a connection, and the memory of one event.
pub const STREAMS: usize = 16;

/// How long the first look may take, for `/api/v1/cluster`: longer than the limit of a question.
const FIRST_LOOK: Duration = Duration::from_secs(10);

const PAGE: &str = include_str!("page/index.html");
const STYLE: &str = include_str!("page/dashboard.css");
const SCRIPT: &str = include_str!("page/dashboard.js");

type Shared = State<Arc<Dashboard>>;

impl Dashboard {
    /// The page, and what it asks for.
    pub fn routes(self: &Arc<Self>) -> Router {
        let file = |kind: &'static str, text: &'static str| {
            get(move || async move { ([(CONTENT_TYPE, kind)], text) })
        };
        Router::new()
            .route("/", file("text/html; charset=utf-8", PAGE))
            .route("/dashboard.css", file("text/css; charset=utf-8", STYLE))
            .route(
                "/dashboard.js",
                file("text/javascript; charset=utf-8", SCRIPT),
            )
            .route("/api/v1/events", get(events))
            .route("/api/v1/cluster", get(cluster))
            .route("/api/v1/history", get(history))
            .with_state(self.clone())
    }
}

fn json(text: impl Into<Body>) -> Response {
    ([(CONTENT_TYPE, "application/json")], text.into()).into_response()
}

/// The figures of the last day or less: `?of=node|cluster&seconds=N`.
async fn history(
    State(dashboard): Shared,
    Query(asked): Query<BTreeMap<String, String>>,
) -> Response {
    let asked = |key| asked.get(key).map(String::as_str);
    let of = match asked("of") {
        Some("node") | None => Of::Node,
        Some("cluster") => Of::Cluster,
        Some(_) => {
            return (StatusCode::BAD_REQUEST, "of must be node or cluster\n").into_response();
        }
    };
    let Ok(seconds) = asked("seconds").unwrap_or("3600").parse() else {
        return (
            StatusCode::BAD_REQUEST,
            "seconds must be a number up to 86400\n",
        )
            .into_response();
    };
    json(dashboard.memory().history(of, seconds).to_string())
}

/// The document of `ionian status --json`.
async fn cluster(State(dashboard): Shared) -> Response {
    let _viewer = dashboard.view();
    let mut seen = dashboard.seen.subscribe();
    let found = tokio::time::timeout(FIRST_LOOK, seen.wait_for(Option::is_some)).await;
    let document = match &found {
        Ok(Ok(seen)) => seen.as_ref().and_then(|seen| seen.document.clone()),
        _ => None,
    };
    match document {
        Some(document) => json(document.to_string()),
        None => (
            StatusCode::SERVICE_UNAVAILABLE,
            "the members of the cluster are not known yet\n",
        )
            .into_response(),
    }
}

/// What the page draws: an event after each look.
async fn events(State(dashboard): Shared) -> Response {
    let Ok(permit) = dashboard.streams.clone().try_acquire_owned() else {
        let text = format!("{STREAMS} pages are open at this node already\n");
        return (
            StatusCode::SERVICE_UNAVAILABLE,
            [("retry-after", "10")],
            text,
        )
            .into_response();
    };
    // One event, so that a page that reads slowly misses events, and takes no more memory.
    let (sender, events) = mpsc::channel(1);
    tokio::spawn(forward(
        dashboard.seen.subscribe(),
        sender,
        dashboard.view(),
        permit,
    ));
    let body = Body::new(EventStream(events));
    ([(CONTENT_TYPE, "text/event-stream")], body).into_response()
}

/// Passes on the latest look, until the page has gone.
async fn forward(
    mut seen: watch::Receiver<Option<Seen>>,
    page: mpsc::Sender<Bytes>,
    _viewer: Viewer,
    _permit: OwnedSemaphorePermit,
) {
    // What is known already comes at once.
    seen.mark_changed();
    loop {
        let room = tokio::select! {
            () = page.closed() => return,
            room = page.reserve() => room,
        };
        let Ok(room) = room else { return };
        let frame = loop {
            tokio::select! {
                () = page.closed() => return,
                changed = seen.changed() => if changed.is_err() { return },
            }
            let latest = seen
                .borrow_and_update()
                .as_ref()
                .map(|seen| seen.frame.clone());
            if let Some(frame) = latest {
                break frame;
            }
        };
        room.send(frame);
    }
}

/// The body of the answer to a page.
struct EventStream(mpsc::Receiver<Bytes>);

impl HttpBody for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<http_body::Frame<Bytes>, Infallible>>> {
        let next = ready!(self.0.poll_recv(context));
        Poll::Ready(next.map(|frame| Ok(http_body::Frame::data(frame))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Look;
    use crate::watch::{Looking, RARELY};
    use axum::http::Request;
    use std::sync::atomic::{AtomicU64, Ordering};
    use tower_service::Service;

    /// Far more than any test needs, by a clock that stands still while there is work.
    const LIMIT: Duration = Duration::from_secs(3600);

    /// A dashboard whose looks are numbered, and how many there were.
    fn dashboard() -> (Arc<Dashboard>, Arc<AtomicU64>) {
        let looks = Arc::new(AtomicU64::new(0));
        let dashboard = Dashboard::new(STREAMS);
        let (own, count) = (dashboard.clone(), looks.clone());
        let looking: Looking = Box::new(move || {
            let number = count.fetch_add(1, Ordering::Relaxed);
            Box::pin(async move {
                Some(Look {
                    document: format!("{{\"number\":{number}}}"),
                    cluster: format!("look {number}"),
                    ..Look::default()
                })
            })
        });
        tokio::task::spawn_local(async move { own.look(&looking).await });
        (dashboard, looks)
    }

    async fn get(dashboard: &Arc<Dashboard>, path: &str) -> Response {
        let request = Request::get(path).body(Body::empty()).unwrap();
        dashboard.routes().call(request).await.unwrap()
    }

    async fn text(response: Response) -> String {
        let bytes = axum::body::to_bytes(response.into_body(), 1 << 20).await;
        String::from_utf8(bytes.unwrap().into()).unwrap()
    }

    /// The next event of a stream.
    async fn event(body: &mut Body) -> String {
        let next = std::future::poll_fn(|context| Pin::new(&mut *body).poll_frame(context));
        let frame = tokio::time::timeout(LIMIT, next)
            .await
            .expect("there is an event");
        let bytes = frame.unwrap().unwrap().into_data().unwrap();
        String::from_utf8(bytes.into()).unwrap()
    }

    async fn local(test: impl Future<Output = ()>) {
        tokio::task::LocalSet::new().run_until(test).await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_page_and_its_files_are_served_and_small() {
        let dashboard = Dashboard::new(STREAMS);
        let files = [
            ("/", "text/html"),
            ("/dashboard.css", "text/css"),
            ("/dashboard.js", "text/javascript"),
        ];
        let mut bytes = 0;
        for (path, kind) in files {
            let response = get(&dashboard, path).await;
            let found = response.headers()[CONTENT_TYPE]
                .to_str()
                .unwrap()
                .to_owned();
            assert!(found.starts_with(kind), "{path}: {found}");
            bytes += text(response).await.len();
        }
        assert!((1000..120 << 10).contains(&bytes), "{bytes}");
        // The policy forbids what is written within the page.
        for forbidden in ["style=", "<style", "onclick", "http://", "https://"] {
            assert!(!PAGE.contains(forbidden), "{forbidden}");
        }
        for forbidden in [
            "innerHTML",
            "outerHTML",
            "insertAdjacentHTML",
            "document.write",
            "eval(",
        ] {
            assert!(!SCRIPT.contains(forbidden), "{forbidden}");
        }
    }

    #[tokio::test(start_paused = true)]
    async fn nodes_are_asked_rarely_without_a_page_and_once_for_all_pages() {
        local(async {
            let (dashboard, looks) = dashboard();
            let looked = || looks.load(Ordering::Relaxed);
            tokio::time::sleep(RARELY / 2).await;
            assert_eq!(looked(), 0);
            tokio::time::sleep(RARELY).await;
            assert_eq!(looked(), 1);
            let [mut one, mut other] = [0; 2].map(|_| None);
            for body in [&mut one, &mut other] {
                let response = get(&dashboard, "/api/v1/events").await;
                assert_eq!(response.status(), StatusCode::OK);
                *body = Some(response.into_body());
            }
            let (mut one, mut other) = (one.unwrap(), other.unwrap());
            for number in 1..4 {
                let expected = format!("\"cluster\":\"look {number}\"");
                for body in [&mut one, &mut other] {
                    let event = event(body).await;
                    assert!(event.starts_with("event: look\ndata: {"), "{event}");
                    assert!(
                        event.contains(&expected) && event.ends_with("}\n\n"),
                        "{event}"
                    );
                }
            }
            assert_eq!(looked(), 4);
            drop((one, other));
            let mut viewers = dashboard.viewers();
            tokio::time::timeout(LIMIT, viewers.wait_for(|count| *count == 0))
                .await
                .unwrap()
                .unwrap();
            let before = looked();
            tokio::time::sleep(RARELY * 10).await;
            let more = looked() - before;
            assert!((9..=11).contains(&more), "{more}");
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn a_page_that_does_not_read_misses_events_and_takes_no_memory() {
        local(async {
            let (dashboard, looks) = dashboard();
            let mut slow = get(&dashboard, "/api/v1/events").await.into_body();
            tokio::time::sleep(Duration::from_secs(61)).await;
            let last = looks.load(Ordering::Relaxed) - 1;
            assert!(last >= 29, "{last}");
            // One waited in the channel, and the next is the latest.
            assert!(event(&mut slow).await.contains("look 0\""));
            assert!(event(&mut slow).await.contains(&format!("look {last}\"")));
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_number_of_open_pages_is_bounded() {
        local(async {
            let (dashboard, _) = dashboard();
            let mut open = Vec::new();
            for _ in 0..STREAMS {
                open.push(get(&dashboard, "/api/v1/events").await);
            }
            let refused = get(&dashboard, "/api/v1/events").await;
            assert_eq!(refused.status(), StatusCode::SERVICE_UNAVAILABLE);
            assert_eq!(
                text(refused).await,
                "16 pages are open at this node already\n"
            );
            open.pop();
            let room = dashboard.streams.acquire();
            drop(
                tokio::time::timeout(LIMIT, room)
                    .await
                    .expect("a page that is closed gives way"),
            );
            assert_eq!(
                get(&dashboard, "/api/v1/events").await.status(),
                StatusCode::OK
            );
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn the_status_is_that_of_a_new_look_if_no_page_is_open() {
        local(async {
            let (dashboard, looks) = dashboard();
            for _ in 0..2 {
                let next = looks.load(Ordering::Relaxed);
                assert_eq!(
                    text(get(&dashboard, "/api/v1/cluster").await).await,
                    format!("{{\"number\":{next}}}")
                );
                assert_eq!(*dashboard.viewers().borrow(), 0);
                tokio::time::sleep(RARELY * 5 / 2).await;
            }
        })
        .await;
    }

    #[tokio::test(start_paused = true)]
    async fn bad_questions_for_the_history_are_refused_with_what_is_allowed() {
        let dashboard = Dashboard::new(STREAMS);
        for (query, says) in [
            ("of=x", "of must be node or cluster"),
            ("seconds=-1", "seconds must be a number"),
        ] {
            let response = get(&dashboard, &format!("/api/v1/history?{query}")).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST);
            assert!(text(response).await.starts_with(says));
        }
        let empty = text(get(&dashboard, "/api/v1/history?of=cluster&seconds=300").await).await;
        assert!(empty.contains("\"series\":{}"), "{empty}");
    }
}
