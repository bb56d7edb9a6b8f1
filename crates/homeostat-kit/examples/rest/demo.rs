//! One owner's wish for the shapes, and the passes that fulfil it.

use std::sync::Arc;

use homeostat_engine::{
    Alone, Book, Config, Error, Failure, Focus, MemoryLedger, Observer, Order, Ownership, Place,
    Report, Source as _, pass,
};
use homeostat_kit::simple::{Adapted, Wishes};

use crate::client::Client;
use crate::service::Service;
use crate::source::{Shape, Shapes};

/// A wish, as the reader of the example writes it: names and colours of squares.
pub(crate) type Squares<'a> = &'a [(&'a str, &'a str)];

/// The wish in the form that the source takes.
pub(crate) fn wish(squares: Squares<'_>) -> Arc<Wishes<Shapes>> {
    let shape = |colour: &str| Shape { kind: "square".to_owned(), colour: colour.to_owned() };
    let wishes = squares.iter().map(|(name, colour)| ((*name).to_owned(), shape(colour)));
    Arc::new(Wishes::new(wishes).unwrap_or_default())
}

/// Everything that one owner needs to run passes.
pub(crate) struct Demo {
    source: Adapted<Shapes>,
    observer: Observer<Adapted<Shapes>>,
    book: Book<Adapted<Shapes>>,
}

impl Demo {
    /// Opens the service for the owner `demo`.
    pub(crate) fn open(service: &Service) -> Result<Self, Error> {
        let source = Adapted::new(Shapes { client: Client::new(service.addr()), owner: "demo" });
        let observer = Observer::open(&source, "loopback")?;
        let [owner, name, scope] = ["demo", "shapes", "loopback"].map(str::to_owned);
        let place = Place { owner, source: name, scope, identity: String::new() };
        let book = Book::open(Arc::new(MemoryLedger::default()), place)?;
        Ok(Demo { source, observer, book })
    }

    /// One pass for a wish.
    pub(crate) async fn pass(
        &mut self,
        squares: Squares<'_>,
    ) -> Result<Report<Adapted<Shapes>>, Error> {
        let order = Order {
            source: &self.source,
            wish: wish(squares),
            ownership: &Ownership::Marked,
            focus: Focus::All,
            config: &Config::default(),
        };
        let writer = self.source.writer(&Alone::i_am_the_only_writer()).map_err(not_opened)?;
        pass(&order, &mut self.observer, &writer, &mut self.book).await
    }
}

fn not_opened(failure: Failure) -> Error {
    Error::Writer { name: "shapes", scope: "loopback".to_owned(), failure }
}
