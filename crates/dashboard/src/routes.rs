//! The page and its interfaces.

use crate::memory::Of;
use crate::watch::{Dashboard, Seen, Viewer};
use bytes::Bytes;
use http::header::{CONTENT_TYPE, HeaderValue, RETRY_AFTER};
use http::{Response, StatusCode};
use http_body::{Body, Frame};
use http_body_util::combinators::BoxBody;
use http_body_util::{BodyExt as _, Full};
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

const TEXT: &str = "text/plain; charset=utf-8";

/// What a page or a program gets.
type Answer = Response<BoxBody<Bytes, Infallible>>;

impl Dashboard {
    /// The page, what it asks for, and what programs may ask: the answer to a request for this path
    /// with what follows its `?`. None for any other path.
    pub fn page(
        self: &Arc<Self>,
        path: &str,
        asked: BTreeMap<String, String>,
    ) -> Option<Pin<Box<dyn Future<Output = Answer> + Send>>> {
        let dashboard = self.clone();
        let file = |kind, text: &'static str| {
            let file = answer(StatusCode::OK, kind, text);
            Some(Box::pin(async { file }) as Pin<Box<dyn Future<Output = Answer> + Send>>)
        };
        match path {
            "/" => file("text/html; charset=utf-8", PAGE),
            "/dashboard.css" => file("text/css; charset=utf-8", STYLE),
            "/dashboard.js" => file("text/javascript; charset=utf-8", SCRIPT),
            "/api/v1/events" => Some(Box::pin(async move { events(&dashboard) })),
            "/api/v1/cluster" => Some(Box::pin(async move { cluster(&dashboard).await })),
            "/api/v1/history" => Some(Box::pin(async move { history(&dashboard, &asked) })),
            _ => None,
        }
    }
}

/// An answer with this type and body.
fn answer(status: StatusCode, kind: &'static str, body: impl Into<Bytes>) -> Answer {
    with_body(status, kind, Full::new(body.into()).boxed())
}

fn with_body(status: StatusCode, kind: &'static str, body: BoxBody<Bytes, Infallible>) -> Answer {
    let mut answer = Response::new(body);
    *answer.status_mut() = status;
    let kind = HeaderValue::from_static(kind);
    answer.headers_mut().insert(CONTENT_TYPE, kind);
    answer
}

fn json(text: String) -> Answer {
    answer(StatusCode::OK, "application/json", text)
}

/// The figures of the last day or less: `?of=node|cluster&seconds=N`.
fn history(dashboard: &Dashboard, asked: &BTreeMap<String, String>) -> Answer {
    let refused = |text| answer(StatusCode::BAD_REQUEST, TEXT, text);
    let asked = |key| asked.get(key).map(String::as_str);
    let of = match asked("of") {
        Some("node") | None => Of::Node,
        Some("cluster") => Of::Cluster,
        Some(_) => return refused("of must be node or cluster\n"),
    };
    let Ok(seconds) = asked("seconds").unwrap_or("3600").parse() else {
        return refused("seconds must be a number up to 86400\n");
    };
    json(dashboard.memory().history(of, seconds).to_string())
}

/// The document of `ionian status --json`.
async fn cluster(dashboard: &Arc<Dashboard>) -> Answer {
    let _viewer = dashboard.view();
    let mut seen = dashboard.seen.subscribe();
    let found = tokio::time::timeout(FIRST_LOOK, seen.wait_for(Option::is_some)).await;
    let document = match &found {
        Ok(Ok(seen)) => seen.as_ref().and_then(|seen| seen.document.clone()),
        _ => None,
    };
    match document {
        Some(document) => json(document.to_string()),
        None => {
            let text = "the members of the cluster are not known yet\n";
            answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, text)
        }
    }
}

/// What the page draws: an event after each look.
fn events(dashboard: &Arc<Dashboard>) -> Answer {
    let Ok(permit) = dashboard.streams.clone().try_acquire_owned() else {
        let text = format!("{STREAMS} pages are open at this node already\n");
        let mut refused = answer(StatusCode::SERVICE_UNAVAILABLE, TEXT, text);
        let after = HeaderValue::from_static("10");
        refused.headers_mut().insert(RETRY_AFTER, after);
        return refused;
    };
    // One event, so that a page that reads slowly misses events, and takes no more memory.
    let (sender, events) = mpsc::channel(1);
    tokio::spawn(forward(
        dashboard.seen.subscribe(),
        sender,
        dashboard.view(),
        permit,
    ));
    let events = EventStream(events).boxed();
    with_body(StatusCode::OK, "text/event-stream", events)
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

impl Body for EventStream {
    type Data = Bytes;
    type Error = Infallible;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        context: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Infallible>>> {
        let next = ready!(self.0.poll_recv(context));
        Poll::Ready(next.map(|frame| Ok(Frame::data(frame))))
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::look::Look;
    use crate::watch::{Looking, RARELY};
    use std::sync::atomic::{AtomicU64, Ordering};

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

    async fn get(dashboard: &Arc<Dashboard>, path: &str) -> Answer {
        dashboard.page(path, BTreeMap::new()).unwrap().await
    }

    async fn text(answer: Answer) -> String {
        let Ok(body) = answer.into_body().collect().await;
        String::from_utf8(body.to_bytes().into()).unwrap()
    }

    /// The next event of a stream.
    async fn event(body: &mut BoxBody<Bytes, Infallible>) -> String {
        let frame = tokio::time::timeout(LIMIT, body.frame())
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
        let history = |asked: &[(&str, &str)]| {
            let owned = |(key, value): &(&str, &str)| (key.to_string(), value.to_string());
            let asked = asked.iter().map(owned).collect();
            dashboard.page("/api/v1/history", asked).unwrap()
        };
        for (asked, says) in [
            (("of", "x"), "of must be node or cluster"),
            (("seconds", "-1"), "seconds must be a number"),
        ] {
            let response = history(&[asked]).await;
            assert_eq!(response.status(), StatusCode::BAD_REQUEST);
            assert!(text(response).await.starts_with(says));
        }
        let empty = text(history(&[("of", "cluster"), ("seconds", "300")]).await).await;
        assert!(empty.contains("\"series\":{}"), "{empty}");
    }
}
