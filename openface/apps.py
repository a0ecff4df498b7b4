from django.apps import AppConfig


class OpenFaceConfig(AppConfig):
    name = "openface"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from openface import checks, runtime_origin_checks  # noqa: F401  they register themselves
