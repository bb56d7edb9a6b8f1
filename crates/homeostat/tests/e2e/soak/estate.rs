//! What is kept: a document with every kind of object, in a world that has foreign ones beside them.

use std::fmt::Write as _;

use super::picture::Picture;
use crate::daemon::Daemon;
use crate::world::World;

const DOCUMENT: &str = include_str!("estate.toml");

/// How many routes the list has, from which raw messages take.
pub(super) const ROUTES: usize = 200;

/// How often things are looked at before it counts that they are not as they should be. Each look
/// starts a dozen programs, so this is a minute at least.
const LOOKS: usize = 300;

/// A world with a document, and how it looks when all is well.
pub(super) struct Estate {
    pub(super) world: World,
    pub(super) picture: Picture,
    foreign: Vec<String>,
}

impl Estate {
    /// Lets a daemon build it, and goes on with that daemon.
    pub(super) fn build() -> (Self, Daemon) {
        let world = World::new();
        super::beside::put(&world);
        let foreign = super::beside::foreign_state(&world);
        let mut list = String::new();
        for number in 0..ROUTES {
            writeln!(list, "20.0.{number}.0/24 via 10.0.0.9").unwrap();
        }
        world.write("many.routes", list);
        let daemon = world.keep(DOCUMENT);
        world.converges();
        // Links become operational a little later than they are made.
        let mut picture = Picture::of(&world);
        for _ in 0..LOOKS {
            let before = std::mem::replace(&mut picture, Picture::of(&world));
            if before == picture && picture.is_operational() {
                break;
            }
        }
        (Estate { world, picture, foreign }, daemon)
    }

    /// A daemon that takes over.
    pub(super) fn keep(&self) -> Daemon {
        self.world.keep(DOCUMENT)
    }

    /// Waits until everything is as it was, by the daemon's word and by everybody else's.
    #[track_caller]
    pub(super) fn is_restored(&self, case: &str) {
        // What somebody fought over waits for a pause to end, unless it is asked for.
        self.world.run("resync");
        let ran = self.world.run("status --wait --timeout 2m");
        let mut found = Picture::of(&self.world);
        for _ in 0..LOOKS {
            if found == self.picture {
                break;
            }
            found = Picture::of(&self.world);
        }
        assert_eq!(found.differences(&self.picture), Vec::<String>::new(), "{case}\n{ran:#?}");
        self.foreign_is_untouched(case);
        self.world.run("status --wait --timeout 2m").exits(0);
        self.world.run("plan host.toml").says(0, "No changes.\n");
    }

    /// Byte for byte as before.
    #[track_caller]
    pub(super) fn foreign_is_untouched(&self, case: &str) {
        for (now, before) in super::beside::foreign_state(&self.world).iter().zip(&self.foreign) {
            assert_eq!(now, before, "{case}");
        }
    }
}
