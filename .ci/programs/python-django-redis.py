"""django-redis as the cache and the session store of Django."""

import os

import django
from django.conf import settings

settings.configure(
    CACHES={
        "default": {
            "BACKEND": "django_redis.cache.RedisCache",
            "LOCATION": "redis://" + os.environ["ADDRS"] + "/0",
            "OPTIONS": {"CLIENT_CLASS": "django_redis.client.DefaultClient"},
        }
    },
    SESSION_ENGINE="django.contrib.sessions.backends.cache",
    SESSION_CACHE_ALIAS="default",
    USE_TZ=True,
)
django.setup()

from django.contrib.sessions.backends.cache import SessionStore
from django.core.cache import cache

cache.set("foo", "value", timeout=25)
assert 0 < cache.ttl("foo") <= 25 and cache.ttl("not-existent") == 0
cache.set_many({"a": 1, "b": [2], "c": "three"})
assert cache.get_many(["a", "b", "c", "d"]) == {"a": 1, "b": [2], "c": "three"}
assert cache.incr("a") == 2 and cache.incr("a", 5) == 7
assert cache.add("a", 1) is False and cache.set("key", "value", nx=True) is True
assert cache.get_or_set("e", lambda: 5) == 5
assert sorted(cache.keys("*")) == ["a", "b", "c", "e", "foo", "key"]
assert len(list(cache.iter_keys("?"))) == 4
with cache.lock("somekey", timeout=60):
    pass
assert cache.touch("foo", 60) and cache.persist("foo") and cache.ttl("foo") is None
assert cache.delete_pattern("?") == 4
cache.delete_many(["foo", "key"])

session = SessionStore()
session["user"] = "alice"
session.save()
assert SessionStore(session_key=session.session_key)["user"] == "alice"
session.flush()
cache.clear()
assert not cache.keys("*")
