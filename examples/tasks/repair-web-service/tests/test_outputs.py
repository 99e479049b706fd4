import json
import urllib.error
import urllib.request

BASE = "http://127.0.0.1:8080"


def call(method, path, value=None, raw=None):
    data = raw if raw is not None else json.dumps(value, ensure_ascii=False).encode() if value is not None else None
    request = urllib.request.Request(BASE + path, data, method=method)
    try:
        with urllib.request.urlopen(request, timeout=5) as answer:
            return answer.status, json.loads(answer.read())
    except urllib.error.HTTPError as error:
        return error.code, json.loads(error.read())


def test_bad_bodies_hold_up_nobody():
    for method, path in (("POST", "/tasks"), ("PUT", "/tasks/1")):
        for raw in (b"{", b"\xff\xfe", b""):
            assert call(method, path, raw=raw) == (400, {"error": "no JSON"})
    assert call("GET", "/tasks")[0] == 200


def test_ids_are_given_out_once():
    first = call("POST", "/tasks", {"title": "a"})[1]["id"]
    second = call("POST", "/tasks", {"title": "b"})[1]["id"]
    assert call("DELETE", f"/tasks/{first}") == (200, {"id": first, "title": "a", "done": False})
    third = call("POST", "/tasks", {"title": "c"})[1]["id"]
    call("DELETE", f"/tasks/{third}")
    fourth = call("POST", "/tasks", {"title": "d"})[1]["id"]
    assert len({first, second, third, fourth}) == 4


def test_filter():
    done = call("POST", "/tasks", {"title": "finished"})[1]["id"]
    assert call("PUT", f"/tasks/{done}", {"done": True}) == (200, {"id": done, "title": "finished", "done": True})
    everything = call("GET", "/tasks")[1]
    assert call("GET", "/tasks?done=true")[1] == [task for task in everything if task["done"]]
    assert call("GET", "/tasks?done=false")[1] == [task for task in everything if not task["done"]]
    assert any(task["done"] for task in everything)


def test_letters():
    task = call("POST", "/tasks", {"title": "größer \u4f60"})[1]
    assert call("GET", f"/tasks/{task['id']}") == (200, {"id": task["id"], "title": "größer \u4f60", "done": False})


def test_unknown_task():
    for method, value in (("GET", None), ("DELETE", None), ("PUT", {"done": True})):
        assert call(method, "/tasks/99999", value) == (404, {"error": "no such task"})
    assert call("GET", "/tasks/x")[0] == 404
