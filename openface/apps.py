from django.apps import AppConfig


class OpenFaceConfig(AppConfig):
    name = "openface"
    default_auto_field = "django.db.models.BigAutoField"

    def ready(self) -> None:
        from openface import checks  # noqa: F401  registers the system checks
