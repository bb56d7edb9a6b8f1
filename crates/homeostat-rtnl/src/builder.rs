//! Builds a wish from typed parts.

use std::collections::{BTreeSet, HashMap};
use std::net::IpAddr;

use homeostat_core::{DuplicateKey, Fingerprint};

use crate::address::{self, Address};
use crate::key::{AddressKey, Key, RouteKey};
use crate::link::LinkName;
use crate::links;
use crate::links::model::{Link, Settings};
use crate::links::normalize::BadLink;
use crate::links::wish::{WishedField, WishedLink};
use crate::model::Object;
use crate::neighbour::{self, Neighbour, NeighbourKey};
use crate::nexthop::{self, Nexthop, NexthopId};
use crate::normalize::Impossible;
use crate::recent::Recent;
use crate::route::{self, Route};
use crate::row::Row;
use crate::rule::{self, Rule, RuleKey};
use crate::wish::{Shape, Wish, Wished, WishedAddress};

/// Why a wish is refused.
#[derive(Clone, Debug, PartialEq, Eq, thiserror::Error)]
#[non_exhaustive]
pub enum WishError {
    /// One key stands there twice.
    #[error(transparent)]
    Twice(#[from] DuplicateKey),
    /// An object that can never be.
    #[error("`{key}` cannot be")]
    Impossible {
        /// Its key.
        key: Key,
        /// Why.
        #[source]
        why: Impossible,
    },
}

/// A wish in the making.
#[derive(Clone, Debug, Default)]
pub struct Builder {
    wish: Wish,
    shapes: HashMap<Route, u32>,
    recent: Recent,
    adopt: BTreeSet<Key>,
}

impl Builder {
    /// Wishes an address.
    pub fn address(&mut self, key: AddressKey, address: Address) -> Result<&mut Self, WishError> {
        let impossible = |why| WishError::Impossible { key: key.into(), why };
        let address = address::normalize(&key, address).map_err(impossible)?;
        self.wish.addresses.push(WishedAddress { key, address, may_adopt: false });
        Ok(self)
    }

    /// Wishes a route.
    pub fn route(&mut self, key: RouteKey, route: Route) -> Result<&mut Self, WishError> {
        let impossible = |why| WishError::Impossible { key: key.into(), why };
        let route = route::normalize(&key, route).map_err(impossible)?;
        self.push(&key, route, false);
        Ok(self)
    }

    /// Wishes a route that may be taken from anybody. For lists: [`may_adopt`](Self::may_adopt)
    /// remembers key by key.
    pub fn adopting_route(&mut self, key: RouteKey, route: Route) -> Result<&mut Self, WishError> {
        let impossible = |why| WishError::Impossible { key: key.into(), why };
        let route = route::normalize(&key, route).map_err(impossible)?;
        self.push(&key, route, true);
        Ok(self)
    }

    fn push(&mut self, key: &RouteKey, route: Route, may_adopt: bool) {
        let shape = self.shape(route);
        match key.dst().addr() {
            IpAddr::V4(dst) => {
                self.wish.v4.push(Row { may_adopt, ..Row::new(key, dst.to_bits(), shape) });
            }
            IpAddr::V6(dst) => {
                self.wish.v6.push(Row { may_adopt, ..Row::new(key, dst.to_bits(), shape) });
            }
        }
    }

    /// Wishes a nexthop.
    pub fn nexthop(&mut self, id: NexthopId, nexthop: Nexthop) -> Result<&mut Self, WishError> {
        self.other(Key::Nexthop(id), nexthop::normalize(id, nexthop).map(Object::Nexthop))
    }

    /// Wishes a rule. Without a priority the kernel chooses one.
    pub fn rule(&mut self, key: RuleKey, rule: Rule) -> Result<&mut Self, WishError> {
        let rule = rule::normalize(&key, rule).map(Object::Rule);
        self.other(Key::Rule(Box::new(key)), rule)
    }

    /// Wishes a permanent neighbour, or a proxy entry.
    pub fn neighbour(
        &mut self,
        key: NeighbourKey,
        neighbour: Neighbour,
    ) -> Result<&mut Self, WishError> {
        let neighbour = neighbour::normalize(&key, neighbour).map(Object::Neighbour);
        self.other(Key::Neighbour(key), neighbour)
    }

    fn other(
        &mut self,
        key: Key,
        object: Result<Object, Impossible>,
    ) -> Result<&mut Self, WishError> {
        let object = match object {
            Ok(object) => object,
            Err(why) => return Err(WishError::Impossible { key, why }),
        };
        self.wish.others.push(Wished { key, object, may_adopt: false });
        Ok(self)
    }

    /// Wishes a link that is made and owned.
    pub fn link(&mut self, name: LinkName, link: Link) -> Result<&mut Self, WishError> {
        let impossible =
            |why| WishError::Impossible { key: Key::Link(name), why: Impossible::Link(why) };
        let link = links::normalize::link(name, link).map_err(impossible)?;
        self.wish.links.made.push(WishedLink { name, link, may_adopt: false });
        Ok(self)
    }

    /// Wishes some fields of a link that somebody else makes.
    pub fn configure(&mut self, name: LinkName, set: Settings) -> Result<&mut Self, WishError> {
        let impossible =
            |why| WishError::Impossible { key: Key::Link(name), why: Impossible::Link(why) };
        links::normalize::settings(name, &set).map_err(impossible)?;
        let fields = set.each().map(|(field, setting)| WishedField { name, field, setting });
        self.wish.links.fields.extend(fields);
        Ok(self)
    }

    /// Gives standing leave to take a wished key from anybody.
    pub fn may_adopt(&mut self, key: impl Into<Key>) -> &mut Self {
        self.adopt.insert(key.into());
        self
    }

    /// Sorts the wishes; refuses a key that stands there twice.
    pub fn build(mut self) -> Result<Wish, WishError> {
        self.wish.addresses.sort_unstable_by_key(|wish| wish.key);
        self.wish.v4.sort_unstable_by_key(Row::<u32>::packed);
        self.wish.v6.sort_unstable_by_key(Row::<u128>::packed);
        self.wish.others.sort_by(|a, b| a.key.cmp(&b.key));
        self.check_unique()?;
        self.check_links()?;
        self.rest_shapes();
        self.mark_adopted();
        self.index_shapes();
        let Wish { addresses, v4, v6, others, shapes, .. } = &mut self.wish;
        addresses.shrink_to_fit();
        v4.shrink_to_fit();
        v6.shrink_to_fit();
        others.shrink_to_fit();
        shapes.shrink_to_fit();
        Ok(self.wish)
    }

    fn shape(&mut self, route: Route) -> u32 {
        let known = &self.wish.shapes;
        let is_known = |shape: u32| known.get(shape as usize).is_some_and(|s| s.route == route);
        let mut guess = self.recent.guess(&route);
        if let Some(shape) = guess.as_deref().copied().filter(|shape| is_known(*shape)) {
            return shape;
        }
        let next = u32::try_from(known.len()).unwrap_or(u32::MAX);
        let shape = *self.shapes.entry(route.clone()).or_insert(next);
        if shape == next {
            let print = Fingerprint::of_object(&route);
            self.wish.shapes.push(Shape { route, print, rests_on: Vec::new(), rows: 0..0 });
        }
        if let Some(guess) = &mut guess {
            **guess = shape;
        }
        shape
    }

    fn check_unique(&self) -> Result<(), DuplicateKey> {
        let Wish { addresses, v4, v6, others, .. } = &self.wish;
        let address = addresses.array_windows().find(|[a, b]| a.key == b.key);
        let v4 = v4.array_windows().find(|[a, b]| a.compare(b).is_eq());
        let v6 = v6.array_windows().find(|[a, b]| a.compare(b).is_eq());
        let other = others.array_windows().find(|[a, b]| a.key == b.key);
        let other = other.map(|[one, _]| one.key.clone());
        let address = address.map(|[one, _]| Key::from(one.key));
        let route = v4.map(|[one, _]| one.key()).or_else(|| v6.map(|[one, _]| one.key()));
        match address.or_else(|| route.map(Key::from)).or(other) {
            Some(key) => Err(DuplicateKey { key: key.to_string() }),
            None => Ok(()),
        }
    }

    fn check_links(&mut self) -> Result<(), WishError> {
        if let Some(key) = self.wish.links.sort() {
            return Err(DuplicateKey { key: key.to_string() }.into());
        }
        match self.wish.links.made_twice() {
            Some(key) => {
                let why = Impossible::Link(BadLink::MadeElsewhere);
                Err(WishError::Impossible { key, why })
            }
            None => Ok(()),
        }
    }

    fn rest_shapes(&mut self) {
        let Wish { addresses, shapes, .. } = &mut self.wish;
        for Shape { route, rests_on, .. } in shapes {
            let keys = addresses.iter().map(|wish| wish.key);
            *rests_on = keys.filter(|key| route::route_rests_on(route, key)).collect();
        }
    }

    /// Lists the routes of each shape, in one sweep over all of them.
    fn index_shapes(&mut self) {
        let Wish { v4, v6, shapes, by_shape, .. } = &mut self.wish;
        let of = || v4.iter().map(|row| row.shape).chain(v6.iter().map(|row| row.shape));
        let mut counts = vec![0_usize; shapes.len()];
        for shape in of() {
            if let Some(count) = counts.get_mut(shape as usize) {
                *count += 1;
            }
        }
        let mut start = 0;
        for (shape, count) in shapes.iter_mut().zip(counts) {
            shape.rows = start..start;
            start += count;
        }
        *by_shape = vec![0; start];
        for (number, shape) in (0_u32..).zip(of()) {
            let Some(shape) = shapes.get_mut(shape as usize) else { continue };
            if let Some(place) = by_shape.get_mut(shape.rows.end) {
                *place = number;
            }
            shape.rows.end += 1;
        }
    }

    fn mark_adopted(&mut self) {
        let (adopt, wish) = (&self.adopt, &mut self.wish);
        if adopt.is_empty() {
            return;
        }
        let is_adopted = |key: Key| adopt.contains(&key);
        wish.addresses.iter_mut().for_each(|wish| wish.may_adopt = is_adopted(wish.key.into()));
        wish.v4.iter_mut().for_each(|row| row.may_adopt |= is_adopted(row.key().into()));
        wish.v6.iter_mut().for_each(|row| row.may_adopt |= is_adopted(row.key().into()));
        wish.others.iter_mut().for_each(|wish| wish.may_adopt = is_adopted(wish.key.clone()));
        let links = wish.links.made.iter_mut();
        links.for_each(|wish| wish.may_adopt = is_adopted(Key::Link(wish.name)));
    }
}
