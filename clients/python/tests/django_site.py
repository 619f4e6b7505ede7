"""A Django project for the tests: its settings, urls and views in one module."""

from __future__ import annotations

from typing import Any

import django
from django.conf import settings
from django.http import HttpRequest, HttpResponse, HttpResponseRedirect, StreamingHttpResponse
from django.urls import path
from django.utils.decorators import method_decorator
from django.views import View

if not settings.configured:
    settings.configure(
        ALLOWED_HOSTS=["*"], ROOT_URLCONF="django_site", SECRET_KEY="tests", MIDDLEWARE=[], RLSIDECAR={}
    )
    django.setup()

from rlsidecar.django import rate_limit


def user(request: HttpRequest) -> Any:
    return request.headers.get("X-User")


def sorry(request: HttpRequest, decision: Any) -> HttpResponse:
    return HttpResponse(f"{decision.limit} only", status=429, headers={"Retry-After": "7"})


@rate_limit("2/hour", key=user)
def plain(request: HttpRequest, page: int) -> HttpResponse:
    return HttpResponse(f"{page}, {request.rate_limit and request.rate_limit.remaining} left")


@rate_limit("2/hour", key=user, scope="shared")
async def coroutine(request: HttpRequest) -> HttpResponse:
    return HttpResponse("async")


@rate_limit("2/hour", key=user, scope="shared", methods=["get"], cost=lambda _: 2)
def costly(request: HttpRequest) -> HttpResponse:
    return HttpResponse("costly")


@rate_limit("1/hour", key=user, block=False)
def lenient(request: HttpRequest) -> HttpResponse:
    return HttpResponse(str(bool(request.rate_limit)))


@method_decorator(rate_limit("1/hour", key=user), name="dispatch")
class Search(View):  # type: ignore[misc]
    def get(self, request: HttpRequest) -> HttpResponse:
        return HttpResponse("class")


@rate_limit(["api", "wide"], key=user)
def policies(request: HttpRequest) -> HttpResponse:
    return HttpResponse("policies")


def stream(request: HttpRequest) -> StreamingHttpResponse:
    return StreamingHttpResponse(iter(["a", "b"]), headers={"X-RateLimit-Limit": "7"})


def moved(request: HttpRequest) -> HttpResponseRedirect:
    return HttpResponseRedirect("/elsewhere")


urlpatterns = [
    path("plain/<int:page>", plain),
    path("async", coroutine),
    path("costly", costly),
    path("lenient", lenient),
    path("class", Search.as_view()),
    path("policies", policies),
    path("stream", stream),
    path("moved", moved),
]
