from django.apps import AppConfig
from django.utils.translation import gettext_lazy as _


class WorkersConfig(AppConfig):
    name = "workers"
    verbose_name = _("Workers")
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from jobs import offers
        from workers import checks  # noqa: F401  # registers itself
        from workers.api import schema  # noqa: F401  # registers itself with the OpenAPI generator
        from workers.offers import offers_for

        offers.provide(offers_for)
