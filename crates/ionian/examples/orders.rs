//! A service on several machines behind HTTP: a shop that never sells what it does not have.
//!
//! ```text
//! orders NAME --config cluster.toml --data DIR        a node of a new cluster
//! orders NAME --join HOST:PORT      --data DIR        a node that joins a running one
//! ```
//!
//! Every node serves clients at the `gateway` that the deployment gives it:
//!
//! ```text
//! PUT /deliveries/KEY {"item": "tea", "amount": 5}    puts five into stock
//! PUT /orders/KEY     {"item": "tea", "amount": 2}    takes two out of it: 201, or 409
//! GET /orders/KEY     GET /stock/ITEM     GET /metrics
//! ```
//!
//! The client chooses the key of a delivery or an order, and the same request again changes
//! nothing. So it may repeat a request whose answer is lost (503), at any node.
//!
//! docs/library.md tells how it is run.

use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::StatusCode;
use axum::response::{IntoResponse, Response};
use axum::routing::{get, put};
use axum::{Json, Router};
use ionian::{
    Context, Deployment, Machine, Metrics, Node, NodeOptions, Origin, ReadLevel, Refusal, Typed,
    TypedClient, TypedError,
};
use serde::{Deserialize, Serialize};
use std::collections::BTreeMap;
use std::error::Error;
use std::process::ExitCode;
use std::sync::Arc;
use tokio::net::TcpListener;
use tokio::runtime::Builder;

/// The longest key or name of an item, in bytes.
const MAX_NAME: usize = 100;

/// The longest body of a request, in bytes.
const MAX_BODY: usize = 1024;

/// The shop: what it has, and what came and went under which key.
#[derive(Default, Serialize, Deserialize)]
struct Shop {
    stock: BTreeMap<String, u64>,
    deliveries: BTreeMap<String, Goods>,
    orders: BTreeMap<String, Goods>,
}

#[derive(Clone, PartialEq, Serialize, Deserialize)]
struct Goods {
    item: String,
    amount: u64,
}

/// New ones are added at the end: the log keeps the old ones.
#[derive(Serialize, Deserialize)]
enum Command {
    Deliver(String, Goods),
    Order(String, Goods),
}

#[derive(Serialize, Deserialize)]
enum Done {
    Now,
    Before,
    /// The key is that of another delivery or order.
    KeyTaken,
    /// There are fewer: this number.
    Left(u64),
}

#[derive(Serialize, Deserialize)]
enum Query {
    Order(String),
    Stock(String),
}

#[derive(Serialize, Deserialize)]
enum Found {
    Order(Option<Goods>),
    Stock(u64),
}

impl Machine for Shop {
    type Command = Command;
    type Reply = Done;
    type Query = Query;
    type Answer = Found;

    fn apply(&mut self, _: &Context, command: Command) -> Done {
        let (known, key, goods, is_order) = match command {
            Command::Deliver(key, goods) => (&mut self.deliveries, key, goods, false),
            Command::Order(key, goods) => (&mut self.orders, key, goods, true),
        };
        match known.get(&key) {
            Some(before) if *before == goods => return Done::Before,
            Some(_) => return Done::KeyTaken,
            None => {}
        }
        let left = self.stock.get(&goods.item).copied().unwrap_or(0);
        let then = match is_order {
            true => left.checked_sub(goods.amount),
            false => left.checked_add(goods.amount),
        };
        let Some(then) = then else {
            return Done::Left(left);
        };
        self.stock.insert(goods.item.clone(), then);
        known.insert(key, goods);
        Done::Now
    }

    fn read(&self, _: &Context, query: Query) -> Found {
        match query {
            Query::Order(key) => Found::Order(self.orders.get(&key).cloned()),
            Query::Stock(item) => Found::Stock(self.stock.get(&item).copied().unwrap_or(0)),
        }
    }
}

/// What the routes use.
struct Front {
    shop: TypedClient<Shop>,
    metrics: Metrics,
}

type Shared = State<Arc<Front>>;

fn routes(front: Front) -> Router {
    Router::new()
        .route("/deliveries/{key}", put(deliver))
        .route("/orders/{key}", put(order).get(find))
        .route("/stock/{item}", get(stock))
        .route("/metrics", get(metrics))
        .layer(DefaultBodyLimit::max(MAX_BODY))
        .with_state(Arc::new(front))
}

async fn deliver(front: Shared, Path(key): Path<String>, Json(goods): Json<Goods>) -> Response {
    change(&front, Command::Deliver, key, goods).await
}

async fn order(front: Shared, Path(key): Path<String>, Json(goods): Json<Goods>) -> Response {
    change(&front, Command::Order, key, goods).await
}

async fn change(
    front: &Front,
    command: fn(String, Goods) -> Command,
    key: String,
    goods: Goods,
) -> Response {
    if key.len().max(goods.item.len()) > MAX_NAME {
        let why = format!("keys and items have up to {MAX_NAME} bytes\n");
        return (StatusCode::BAD_REQUEST, why).into_response();
    }
    match front.shop.write(&command(key, goods)).await {
        Ok(Done::Now) => StatusCode::CREATED.into_response(),
        Ok(Done::Before) => StatusCode::OK.into_response(),
        Ok(Done::KeyTaken) => (StatusCode::CONFLICT, "the key is taken\n").into_response(),
        Ok(Done::Left(left)) => {
            (StatusCode::CONFLICT, format!("{left} in stock\n")).into_response()
        }
        Err(error) => refused(&error),
    }
}

async fn find(front: Shared, Path(key): Path<String>) -> Response {
    match ask(&front, Query::Order(key)).await {
        Ok(Found::Order(Some(goods))) => Json(goods).into_response(),
        Ok(_) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => refused(&error),
    }
}

async fn stock(front: Shared, Path(item): Path<String>) -> Response {
    match ask(&front, Query::Stock(item)).await {
        Ok(Found::Stock(amount)) => Json(amount).into_response(),
        Ok(_) => StatusCode::NOT_FOUND.into_response(),
        Err(error) => refused(&error),
    }
}

/// Sees every order that was acknowledged before, by any node.
async fn ask(front: &Front, query: Query) -> Result<Found, TypedError> {
    front.shop.read(&query, ReadLevel::Linearizable).await
}

async fn metrics(front: Shared) -> String {
    front.metrics.text()
}

/// The text says whether it may have been executed.
fn refused(error: &TypedError) -> Response {
    let status = match error {
        TypedError::Refused(Refusal::Busy) => StatusCode::TOO_MANY_REQUESTS,
        TypedError::Refused(Refusal::Unavailable | Refusal::Unknown) => {
            StatusCode::SERVICE_UNAVAILABLE
        }
        _ => StatusCode::INTERNAL_SERVER_ERROR,
    };
    (status, format!("{error}\n")).into_response()
}

fn main() -> ExitCode {
    match run() {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("orders: {error}");
            ExitCode::FAILURE
        }
    }
}

fn run() -> Result<(), Box<dyn Error>> {
    tracing_subscriber::fmt()
        .with_writer(std::io::stderr)
        .init();
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let words: Vec<&str> = arguments.iter().map(String::as_str).collect();
    let (name, origin, data) = match words[..] {
        [name, "--config", file, "--data", data] => {
            (name, Origin::Founded(Deployment::load(file)?), data)
        }
        [name, "--join", contact, "--data", data] => {
            (name, Origin::Joining(contact.to_owned()), data)
        }
        _ => return Err("usage: orders NAME (--config FILE | --join HOST:PORT) --data DIR".into()),
    };
    let node = Node::start::<Typed<Shop>>(NodeOptions {
        name: name.to_owned(),
        origin,
        data: data.into(),
        machine: "orders".to_owned(),
        tls: None,
    })?;
    let address = node.gateway().ok_or("this node has no gateway")?;
    let front = routes(Front {
        shop: TypedClient::new(node.client()),
        metrics: node.metrics(),
    });
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let listener = runtime
        .block_on(TcpListener::bind(address))
        .map_err(|error| format!("cannot listen on {address}: {error}"))?;
    println!("ready {name} {address}");
    std::thread::spawn(move || runtime.block_on(axum::serve(listener, front).into_future()));
    // Killing the program is safe, because acknowledged commands are on disk.
    Ok(node.wait()?)
}
